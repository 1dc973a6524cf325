/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// Future are the flags that describe a namespace that does not exist.
type Future struct {
	Creator string
	Groups  []string
	Labels  string
}

// AddFlags adds the flags.
func (f *Future) AddFlags(flags *pflag.FlagSet) {
	f.AddCreatorFlags(flags)
	flags.StringVar(&f.Labels, "labels", f.Labels, "Labels of a namespace that does not exist, such as team=a,tier=b.")
}

// AddCreatorFlags adds the flags that describe the creator.
func (f *Future) AddCreatorFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.Creator, "creator", f.Creator, "The creator of a namespace that does not exist. By default, you are the creator.")
	flags.StringSliceVar(&f.Groups, "groups", f.Groups, "The groups of the creator. The command adds system:authenticated, as kube-apiserver does for --as.")
}

// IsSet reports whether a flag is set.
func (f *Future) IsSet() bool { return f.Creator != "" || len(f.Groups) > 0 || f.Labels != "" }

// Namespace returns the namespace, or one as it would be, and whether it exists. The user who runs the command creates
// it by default.
func (f *Future) Namespace(ctx context.Context, core kubernetes.Interface, name string) (*corev1.Namespace, bool, error) {
	namespace, err := core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		if f.IsSet() {
			return nil, false, fmt.Errorf("namespace %q exists: --creator, --groups and --labels are for namespaces that do not", name)
		}
		return namespace, true, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, false, err
	}
	with, err := labels.ConvertSelectorToLabelsMap(f.Labels)
	if err != nil {
		return nil, false, fmt.Errorf("--labels=%s: %w", f.Labels, err)
	}
	creator, groups, err := f.User(ctx, core)
	if err != nil {
		return nil, false, err
	}
	with[corev1.LabelMetadataName], with[v1alpha1.LabelInitializing] = name, "true"
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: with, Annotations: map[string]string{
		v1alpha1.AnnotationCreatedBy: creator, v1alpha1.AnnotationCreatedByGroups: strings.Join(groups, "\n"),
	}}}, false, nil
}

// User returns the name and the groups of the creator, by default those of the user who runs the command.
func (f *Future) User(ctx context.Context, core kubernetes.Interface) (name string, groups []string, err error) {
	if f.Creator != "" {
		return f.Creator, allGroups(f.Creator, f.Groups), nil
	}
	self, err := Self(ctx, core)
	if err != nil {
		return "", nil, fmt.Errorf("%w; name the creator with --creator", err)
	}
	if len(f.Groups) > 0 {
		return self.Username, allGroups(self.Username, f.Groups), nil
	}
	return self.Username, self.Groups, nil
}

// allGroups adds to the groups of a user those that kube-apiserver adds when the user is impersonated.
func allGroups(name string, groups []string) []string {
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil && len(groups) == 0 {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	authenticated := user.AllAuthenticated
	if name == user.Anonymous {
		authenticated = user.AllUnauthenticated
	}
	if slices.Contains(groups, authenticated) {
		return groups
	}
	return append(slices.Clone(groups), authenticated)
}
