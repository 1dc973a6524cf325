/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package rbac is the command kubectl nsinit rbac: it prints the roles and bindings that an initializer needs.
package rbac

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const long = `Print the roles and bindings that every initializer needs. These roles let the initializer read NamespaceLifecycles, write into
initializing namespaces, report that it is served, and remove itself from the pending initializers. Add the permissions for the objects
that your initializer writes. The names of the printed objects contain the user, so that the roles of another user of the initializer stay.

With --view instead of an initializer, the command prints a binding that lets a user read NamespaceLifecycles, for example with kubectl
nsinit status.

The command does not contact a cluster. Pass the output to kubectl apply.`

const example = `  # Grant the service account log-index in the namespace logging what an initializer needs
  kubectl nsinit rbac log-index.example.com --service-account=logging:log-index | kubectl apply -f -

  # Print the roles of an initializer that is also a participant, and registers itself in the configuration 20-log-index
  kubectl nsinit rbac log-index.example.com --service-account=logging:log-index --finalizer --configuration=20-log-index

  # Let the initializer write only ConfigMaps and Roles, and only in closed and terminating namespaces
  kubectl nsinit rbac labels.example.com --service-account=platform:labels --confine-to=configmaps,roles.rbac.authorization.k8s.io | kubectl apply -f -

  # Let jane run kubectl nsinit status
  kubectl nsinit rbac --view --user=jane | kubectl apply -f -`

// Options are the options of the command.
type Options struct {
	cmdutil.Base
	ServiceAccount string
	User           string
	View           bool
	Finalizer      bool
	Configuration  string
	Objects        bool

	ConfineTo []string

	initializer string
	subject     rbacv1.Subject
	resources   []schema.GroupResource
}

// NewCommand returns the command.
func NewCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Base: cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags("", scheme.Scheme)}}
	o.PrintFlags.WithDefaultOutput("yaml")
	o.Offline = func() bool { return true }
	command := cmdutil.NewCommand(f, o, &cobra.Command{
		Use:     "rbac INITIALIZER",
		Short:   "Print the roles that an initializer needs",
		Long:    long,
		Example: example,
		Args:    cmdutil.ArgsUnless(&o.View, "--view is for no initializer"),
	})
	command.Flags().StringVar(&o.ServiceAccount, "service-account", o.ServiceAccount, "NAMESPACE:NAME of the service account that the initializer runs as.")
	command.Flags().StringVar(&o.User, "user", o.User, "User that acts as the initializer: a person, or a program outside the cluster.")
	command.Flags().BoolVar(&o.View, "view", o.View, "Print a binding that lets a user read NamespaceLifecycles, instead of the roles of an initializer.")
	command.Flags().BoolVar(&o.Finalizer, "finalizer", o.Finalizer, "The initializer is also a participant: it cleans up after deleted namespaces.")
	command.Flags().StringVar(&o.Configuration, "configuration", o.Configuration, "Name of the NamespaceInitializerConfiguration in which the initializer registers itself.")
	command.Flags().StringSliceVar(&o.ConfineTo, "confine-to", o.ConfineTo, "Also print a policy that confines the initializer: it may write only these namespaced resources (RESOURCE[.GROUP],...), and only in initializing or terminating namespaces. With an empty list, the initializer may write no such resource. The policy does not limit the service account tokens that the initializer creates: these tokens work after the namespace opens.")
	command.Flags().BoolVar(&o.Objects, "objects", o.Objects, "The initializer acts on pods and Jobs, not on namespaces.")
	command.MarkFlagsMutuallyExclusive("view", "finalizer")
	command.MarkFlagsMutuallyExclusive("view", "objects")
	command.MarkFlagsMutuallyExclusive("objects", "finalizer")
	command.MarkFlagsMutuallyExclusive("objects", "configuration")
	command.MarkFlagsMutuallyExclusive("objects", "confine-to")
	command.MarkFlagsMutuallyExclusive("view", "confine-to")
	command.MarkFlagsMutuallyExclusive("view", "configuration")
	return command
}

// Validate implements cmdutil.Options.
func (o *Options) Validate() (err error) {
	if o.subject, err = o.parseSubject(); err != nil {
		return err
	}
	if o.resources, err = parseResources(o.ConfineTo); err != nil {
		return err
	}
	if !o.View {
		o.initializer = o.Args[0]
		if problems := helper.ValidateInitializerName(o.initializer); len(problems) > 0 {
			return fmt.Errorf("initializer %q: %s", o.initializer, strings.Join(problems, "; "))
		}
	}
	return o.Base.Validate()
}

// Run implements cmdutil.Options.
func (o *Options) Run(context.Context) error {
	printer, err := o.PrintFlags.ToPrinter()
	if err != nil {
		return err
	}
	for _, resource := range o.resources {
		if resource.Group == "" && (resource.Resource == "serviceaccounts" || resource.Resource == "secrets") {
			_, _ = fmt.Fprintf(o.ErrOut, "Warning: with %s, the initializer can make tokens of service accounts while a namespace is initializing; "+
				"they work after it opens, and the policy does not limit them\n", resource.Resource)
		}
	}
	for _, object := range o.objects() {
		if err := printer.PrintObj(object, o.Out); err != nil {
			return err
		}
	}
	return nil
}

// parseSubject returns who gets the permissions.
func (o *Options) parseSubject() (rbacv1.Subject, error) {
	namespace, name, ok := strings.Cut(o.ServiceAccount, ":")
	switch {
	case (o.ServiceAccount == "") == (o.User == ""):
		return rbacv1.Subject{}, errors.New("give one of --service-account=NAMESPACE:NAME and --user=NAME")
	case o.User != "":
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: o.User}, nil
	case !ok || namespace == "" || name == "" || strings.Contains(name, ":"):
		return rbacv1.Subject{}, fmt.Errorf("--service-account=%s: give NAMESPACE:NAME", o.ServiceAccount)
	}
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, nil
}

// objects returns the role of the initializer, its binding, the binding of the role that all initializers have, and what confines it.
func (o *Options) objects() []runtime.Object {
	subject := subjectName(o.subject)
	if o.View {
		return []runtime.Object{bind("nsinit:view:"+subject, "nsinit:view", o.subject)}
	}
	verbs := []string{v1alpha1.VerbInitialize}
	if o.Finalizer {
		verbs = append(verbs, v1alpha1.VerbFinalize)
	}
	group := v1alpha1.SchemeGroupVersion.Group
	rules := []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{v1alpha1.ResourceInitializers}, ResourceNames: []string{o.initializer}, Verbs: verbs}}
	if o.Configuration != "" {
		const configurations = "namespaceinitializerconfigurations"
		// A resource name does not restrict create, whose request has the name in the body.
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{configurations}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{configurations}, ResourceNames: []string{o.Configuration}, Verbs: []string{"get", "update"}})
	}
	name, role := objectName(o.initializer), "nsinit:initializer"
	if o.Objects { // an initializer can act on namespaces, too
		name, role = name+"-objects", "nsinit:object-initializer"
	}
	var objects []runtime.Object
	if o.ConfineTo != nil { // an empty list, too
		objects = o.confinement() // first, so that it is in force before the permissions
	}
	return append(objects,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + ":" + subject}, Rules: rules},
		bind(name+":"+subject, name+":"+subject, o.subject),
		bind(name+"-initializer:"+subject, role, o.subject))
}

// longestName leaves room for the prefix of the policy, whose name is a domain name.
const longestName = validation.DNS1123SubdomainMaxLength - len(confinePrefix)

// objectName returns a domain name for the objects of an initializer, or of INITIALIZER:USER, which no other one has: otherwise, its
// policy would replace the policy of the other one. The part after a slash or a colon can have characters that a domain name cannot.
func objectName(name string) string {
	i := strings.IndexAny(name, "/:")
	if i < 0 && len(name) <= longestName {
		return name
	}
	domain := name
	if i >= 0 {
		domain = name[:i] + strings.Map(func(r rune) rune {
			if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
				return r
			}
			return '-'
		}, strings.ToLower(name[i:]))
	}
	return strings.TrimRight(domain[:min(len(domain), longestName-len(hash("")))], "-.") + hash(name)
}

// subjectName returns what names a subject in the names of its roles and bindings: otherwise, those of another subject would replace
// them. These names cannot contain a slash or a percent sign, and with a colon, the name of a user can look like a service account.
func subjectName(subject rbacv1.Subject) string {
	switch {
	case subject.Kind == rbacv1.ServiceAccountKind:
		return subject.Namespace + ":" + subject.Name
	case strings.ContainsAny(subject.Name, "/%:"):
		return strings.NewReplacer("/", "-", "%", "-").Replace(subject.Name) + hash(subject.Name)
	}
	return subject.Name
}

// hash returns the end of a name that differs from names which look the same.
func hash(name string) string { return fmt.Sprintf("-%x", sha256.Sum256([]byte(name)))[:9] }

func bind(name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}
