/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package freeze_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/freeze"
)

// cluster has an open namespace and a frozen one. Its user is jane.
func cluster() *cmdtesting.Cluster {
	c := cmdtesting.New(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "depot", Labels: map[string]string{v1alpha1.LabelFrozen: "true"},
			Annotations: map[string]string{v1alpha1.AnnotationFrozenBy: "joe", v1alpha1.AnnotationFrozenReason: "audit"}}})
	c.Core.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "jane"}}}, nil
	})
	return c
}

// refusing refuses patches.
func refusing(err error) *cmdtesting.Cluster {
	c := cluster()
	c.Core.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	return c
}

// unknown does not say who the user is.
func unknown() *cmdtesting.Cluster {
	c := cluster()
	c.Core.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no rights") })
	return c
}

func TestFreeze(t *testing.T) {
	resource := corev1.Resource("namespaces")
	frozen := metav1.ObjectMeta{Labels: map[string]string{"team": "a", v1alpha1.LabelFrozen: "true"},
		Annotations: map[string]string{v1alpha1.AnnotationFrozenBy: "jane", v1alpha1.AnnotationFrozenReason: "audit"}}
	for name, test := range map[string]struct {
		command cmdtesting.Command
		test    cmdtesting.Test
		want    metav1.ObjectMeta
	}{
		"freeze":     {freeze.NewFreezeCommand, cmdtesting.Test{Args: []string{"shop", "--reason=audit"}, Out: "namespace/shop frozen\n"}, frozen},
		"a dry run":  {freeze.NewFreezeCommand, cmdtesting.Test{Args: []string{"shop", "--reason=audit", "--dry-run=server"}, Out: "namespace/shop frozen (server dry run)\n"}, frozen},
		"the name":   {freeze.NewFreezeCommand, cmdtesting.Test{Args: []string{"shop", "--reason=audit", "-o", "name"}, Out: "namespace/shop\n"}, frozen},
		"unfreeze":   {freeze.NewUnfreezeCommand, cmdtesting.Test{Args: []string{"depot"}, Out: "namespace/depot unfrozen\n"}, metav1.ObjectMeta{}},
		"not frozen": {freeze.NewUnfreezeCommand, cmdtesting.Test{Args: []string{"shop"}, Out: "namespace/shop unfrozen\n"}, metav1.ObjectMeta{Labels: map[string]string{"team": "a"}}},

		"no reason":    {command: freeze.NewFreezeCommand, test: cmdtesting.Test{Args: []string{"shop"}, Err: "--reason is missing"}},
		"no user":      {command: freeze.NewFreezeCommand, test: cmdtesting.Test{Cluster: unknown(), Args: []string{"shop", "--reason=audit"}, Err: "cannot determine your user name: no rights"}},
		"no namespace": {command: freeze.NewUnfreezeCommand, test: cmdtesting.Test{Args: []string{"none"}, Err: `namespace "none" does not exist`}},
		"may not": {command: freeze.NewFreezeCommand, test: cmdtesting.Test{Cluster: refusing(apierrors.NewForbidden(resource, "shop", errors.New("no"))), Args: []string{"shop", "--reason=audit"},
			Err: "kubectl create clusterrolebinding nsinit-freeze --clusterrole=nsinit:freeze --user=USER"}},
		"refused": {command: freeze.NewFreezeCommand, test: cmdtesting.Test{Cluster: refusing(errors.New("too long")), Args: []string{"shop", "--reason=audit"}, Err: "too long"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.test.Cluster == nil {
				test.test.Cluster = cluster()
			}
			test.test.Check(t, test.command)
			if test.test.Err != "" {
				return
			}
			live, err := test.test.Cluster.Core.CoreV1().Namespaces().Get(t.Context(), test.test.Args[0], metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := metav1.ObjectMeta{Labels: live.Labels, Annotations: live.Annotations}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestComplete: each command offers the namespaces that it changes.
func TestComplete(t *testing.T) {
	for name, test := range map[string]struct {
		command cmdtesting.Command
		want    []string
	}{"freeze": {freeze.NewFreezeCommand, []string{"shop"}}, "unfreeze": {freeze.NewUnfreezeCommand, []string{"depot"}}} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, cluster().Complete(t, test.command)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
