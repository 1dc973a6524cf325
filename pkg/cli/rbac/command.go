/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package rbac is the command kubectl nsinit rbac: the roles that an initializer needs.
package rbac

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
)

const long = `Print the roles and bindings that an initializer needs to act: to read records, to write into namespaces that are being
initialized, and to remove its own name. What its work itself takes is not part of it.

Nothing is asked of a cluster, and nothing is changed: pass it on to kubectl apply.`

const example = `  # What the service account log-index in the namespace logging needs
  kubectl nsinit rbac log-index.example.com --service-account=logging:log-index | kubectl apply -f -

  # If it also cleans up after namespaces, and registers itself in the configuration 20-log-index
  kubectl nsinit rbac log-index.example.com --service-account=logging:log-index --finalizer --configuration=20-log-index`

// options are what the command was called with.
type options struct {
	streams       genericiooptions.IOStreams
	account       string
	user          string
	finalizer     bool
	configuration string
}

// NewCommand returns the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams}
	command := &cobra.Command{
		Use:               "rbac INITIALIZER",
		Short:             "Print the roles that an initializer needs",
		Long:              long,
		Example:           example,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(_ *cobra.Command, args []string) error { return o.run(args[0]) },
	}
	command.Flags().StringVar(&o.account, "service-account", o.account, "NAMESPACE:NAME of the service account that the initializer runs as.")
	command.Flags().StringVar(&o.user, "user", o.user, "User that acts as the initializer, where it is a person or runs outside of the cluster.")
	command.Flags().BoolVar(&o.finalizer, "finalizer", o.finalizer, "It also cleans up after namespaces that are deleted.")
	command.Flags().StringVar(&o.configuration, "configuration", o.configuration, "Name of the NamespaceInitializerConfiguration in which it registers itself.")
	return command
}

func (o *options) run(initializer string) error {
	if problems := validation.ValidateInitializerName(initializer); len(problems) > 0 {
		return fmt.Errorf("initializer %q: %s", initializer, strings.Join(problems, "; "))
	}
	subject, err := o.subject()
	if err != nil {
		return err
	}
	return write(o.streams.Out, o.objects(initializer, subject)...)
}

// subject is who gets the rights.
func (o *options) subject() (rbacv1.Subject, error) {
	namespace, name, ok := strings.Cut(o.account, ":")
	switch {
	case (o.account == "") == (o.user == ""):
		return rbacv1.Subject{}, fmt.Errorf("give one of --service-account=NAMESPACE:NAME and --user=NAME")
	case o.user != "":
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: o.user}, nil
	case !ok || namespace == "" || name == "" || strings.Contains(name, ":"):
		return rbacv1.Subject{}, fmt.Errorf("--service-account=%s: give NAMESPACE:NAME", o.account)
	}
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, nil
}

// objects are the role of this initializer and the bindings of it and of the role that all
// initializers have.
func (o *options) objects(initializer string, subject rbacv1.Subject) []runtime.Object {
	verbs := []string{v1alpha1.VerbInitialize}
	if o.finalizer {
		verbs = append(verbs, v1alpha1.VerbFinalize)
	}
	group := v1alpha1.SchemeGroupVersion.Group
	rules := []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{v1alpha1.ResourceInitializers}, ResourceNames: []string{initializer}, Verbs: verbs}}
	if o.configuration != "" {
		const configurations = "namespaceinitializerconfigurations"
		// A name says nothing of a creation, which names its object in the body.
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{configurations}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{configurations}, ResourceNames: []string{o.configuration}, Verbs: []string{"get", "update"}})
	}
	bind := func(name, role string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{subject},
		}
	}
	return []runtime.Object{
		&rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
			ObjectMeta: metav1.ObjectMeta{Name: initializer},
			Rules:      rules,
		},
		bind(initializer, initializer),
		bind(initializer+"-initializer", "nsinit:initializer"),
	}
}

func write(out io.Writer, objects ...runtime.Object) error {
	var printer printers.YAMLPrinter
	for _, object := range objects {
		if err := printer.PrintObj(object, out); err != nil {
			return err
		}
	}
	return nil
}
