/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package off holds the commands kubectl nsinit off and on: nsinit stops to close new namespaces, and closes them again. They
// need no program of nsinit.
package off

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/controller/gate"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// offLimit is how long kube-apiserver may take until it evaluates no removed policy any more.
const offLimit = 30 * time.Second

// Options are the options of both commands.
type Options struct {
	cmdutil.Base
	OpenClosed bool

	run func(ctx context.Context) error
}

// NewOffCommand returns the command kubectl nsinit off.
func NewOffCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{}
	o.run = o.off
	command := newCommand(f, streams, o, &cobra.Command{
		Use:   "off",
		Short: "Stop closing new namespaces, even while nsinit is down",
		Long: `Stop closing new namespaces, for example after an installation or an upgrade failed. The command needs only kube-apiserver. It does
the following, and prints each object that it changes:

- It creates the ConfigMap nsinit-off. While this ConfigMap exists, nsinit-controller-manager does not close new namespaces.
- It deletes the binding of the policy nsinit-guard-create, and the binding or the webhook of the stamp.
- If the API of nsinit is unavailable, it deletes the APIService. Kubernetes removes no namespace while a registered API is unavailable.

Configurations and NamespaceLifecycles stay. Closed namespaces stay closed until nsinit has initialized these namespaces. With
--open-closed, the command opens closed namespaces without waiting for the remaining initializers.

To close new namespaces again, run kubectl nsinit on.`,
		Example: `  # Show what the command would change
  kubectl nsinit off --open-closed --dry-run=server

  # Stop closing new namespaces, and open the closed namespaces
  kubectl nsinit off --open-closed`,
	})
	command.Flags().BoolVar(&o.OpenClosed, "open-closed", false, "Open closed namespaces, without waiting for the remaining initializers.")
	return command
}

// NewOnCommand returns the command kubectl nsinit on.
func NewOnCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{}
	o.run = o.on
	return newCommand(f, streams, o, &cobra.Command{
		Use:   "on",
		Short: "Close new namespaces again, after kubectl nsinit off",
		Long: `Close new namespaces again, after kubectl nsinit off. The command deletes the ConfigMap nsinit-off.

When nsinit works, nsinit-controller-manager closes new namespaces again. Namespaces that were created in the meantime stay open. If off
deleted the APIService, nsinit-controller-manager creates the APIService again when a pod of nsinit-apiserver is ready.`,
		Example: `  # Close new namespaces again, and wait until nsinit closes new namespaces
  kubectl nsinit on
  kubectl nsinit check --wait`,
	})
}

func newCommand(f cmdutil.Factory, streams genericiooptions.IOStreams, o *Options, command *cobra.Command) *cobra.Command {
	o.Base = cmdutil.Base{IOStreams: streams, PrintFlags: cmdutil.NewPrintFlags("", scheme.Scheme)}
	o.DryRun.AddFlag(command)
	return cmdutil.NewCommand(f, o, command)
}

// Run implements cmdutil.Options.
func (o *Options) Run(ctx context.Context) error { return o.run(ctx) }

func (o *Options) off(ctx context.Context) error {
	self, err := cmdutil.Self(ctx, o.Clients.Core)
	if err != nil {
		return err
	}
	namespace := o.Clients.InstalledIn(ctx)
	service, available, err := o.apiService(ctx)
	if err != nil {
		return err
	}
	// The ConfigMap comes first, because the controller creates again what is removed without it.
	if err := o.mark(ctx, namespace, self.Username); apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		_, _ = fmt.Fprintf(o.ErrOut, "ConfigMap %s cannot be created: %v. If nsinit-controller-manager still runs, it closes new namespaces again.\n", installation.Off, err)
	} else if err != nil {
		return err
	}
	objects, err := gate.NewObjects(o.Clients.Core, namespace)
	if err != nil {
		return err
	}
	for _, object := range objects.InOrder() {
		removed, err := object.Remove(ctx, metav1.DeleteOptions{DryRun: o.DryRun.Options()})
		if err != nil {
			return err
		}
		if removed {
			if err := o.print(object.GroupVersionKind(), object.Name, "deleted"); err != nil {
				return err
			}
		}
	}
	if service != nil {
		err := o.Clients.APIs.ApiregistrationV1().APIServices().Delete(ctx, service.Name, metav1.DeleteOptions{DryRun: o.DryRun.Options()})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err := o.print(apiregistrationv1.SchemeGroupVersion.WithKind("APIService"), service.Name, "deleted"); err != nil {
			return err
		}
	}
	// This comes first, because a namespace that is created meanwhile can still be closed. Its failure opens nothing less: another
	// policy of the cluster may refuse every namespace that it tries to create.
	var unverified error
	if !o.DryRun {
		unverified = o.verify(ctx, self)
	}
	return errors.Join(unverified, o.open(ctx, available))
}

// apiService returns the APIService of nsinit if it is to be removed, because the API is not available, and whether it is.
func (o *Options) apiService(ctx context.Context) (unavailable *apiregistrationv1.APIService, available bool, err error) {
	service, err := o.Clients.APIs.ApiregistrationV1().APIServices().Get(ctx, installation.APIService, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case apiregistrationv1helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available):
		return nil, true, nil
	}
	return service, false, nil
}

// mark writes the ConfigMap with the name of the user.
func (o *Options) mark(ctx context.Context, namespace, user string) error {
	configMaps, data := o.Clients.Core.CoreV1().ConfigMaps(namespace), map[string]string{installation.OffUser: user}
	_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: installation.Off}, Data: data}, metav1.CreateOptions{DryRun: o.DryRun.Options()})
	operation := "created"
	if apierrors.IsAlreadyExists(err) {
		var patch []byte
		if patch, err = json.Marshal(map[string]any{"data": data}); err == nil {
			_, err = configMaps.Patch(ctx, installation.Off, types.MergePatchType, patch, metav1.PatchOptions{DryRun: o.DryRun.Options()})
		}
		operation = "patched"
	}
	if err != nil {
		return err
	}
	return o.print(corev1.SchemeGroupVersion.WithKind("ConfigMap"), installation.Off, operation)
}

// open opens the namespaces that are closed, or counts them. available says that nsinit can initialize them.
func (o *Options) open(ctx context.Context, available bool) error {
	namespaces := o.Clients.Core.CoreV1().Namespaces()
	list, err := namespaces.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelInitializing})
	if err != nil {
		return err
	}
	closed := 0
	var errs []error
	for _, namespace := range list.Items {
		switch {
		case namespace.DeletionTimestamp != nil:
			continue
		case !o.OpenClosed:
			closed++
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:null}}}`, namespace.UID, v1alpha1.LabelInitializing)
		_, err := namespaces.Patch(ctx, namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: o.DryRun.Options()})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it was deleted meanwhile
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot open namespace %q: %w", namespace.Name, err))
			continue
		}
		if err := o.print(corev1.SchemeGroupVersion.WithKind("Namespace"), namespace.Name, "opened"); err != nil {
			return err
		}
	}
	if closed > 0 {
		until := "nsinit has initialized them"
		if !available {
			until = "nsinit works again and has initialized them"
		}
		_, _ = fmt.Fprintf(o.ErrOut, "%d closed namespaces stay closed until %s; to open them now, run kubectl nsinit off --open-closed\n", closed, until)
	}
	return errors.Join(errs...)
}

// exemption returns why a new namespace of the user is exempt, or may be, or "".
func (o *Options) exemption(ctx context.Context, namespace *corev1.Namespace, self authenticationv1.UserInfo) string {
	list, err := o.Clients.Exemptions(ctx)
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	exemption := list.Exempt(installation.Creation{Name: namespace.Name, GenerateName: namespace.GenerateName, Creator: self.Username, Groups: self.Groups})
	if exemption == nil {
		return ""
	}
	return fmt.Sprintf("it is exempt by %s: %s", list.Source, exemption)
}

// verify waits until a new namespace of the user is not closed. If the namespace is exempt, this shows nothing.
func (o *Options) verify(ctx context.Context, self authenticationv1.UserInfo) error {
	deadline := o.Clients.Clock.Now().Add(offLimit)
	for {
		namespace, err := o.Clients.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "nsinit-off-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !helper.IsClosed(namespace) {
			result := "New namespaces are not closed any more."
			if doubt := o.exemption(ctx, namespace, self); doubt != "" {
				result = "It is not verified that new namespaces are not closed any more. One of yours is not closed, but " + doubt + "."
			}
			_, _ = fmt.Fprintln(o.ErrOut, result, "To close them again, run kubectl nsinit on.")
			return nil
		}
		if !o.Clients.Clock.Now().Before(deadline) {
			if err == nil {
				err = errors.New("it gets the label " + v1alpha1.LabelInitializing + "; if kube-apiserver reads policies of nsinit from files, remove them on each control plane node (docs/harden.md)")
			}
			return fmt.Errorf("a new namespace is still closed or refused: %w", err)
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-o.Clients.Clock.After(time.Second):
		}
	}
}

func (o *Options) on(ctx context.Context) error {
	configMaps := o.Clients.Core.CoreV1().ConfigMaps(o.Clients.InstalledIn(ctx))
	mark, err := configMaps.Get(ctx, installation.Off, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, _ = fmt.Fprintln(o.ErrOut, "kubectl nsinit off was not run, or on was run since: nothing is changed.")
		return nil
	}
	if err != nil {
		return err
	}
	// Another off can be in progress.
	err = configMaps.Delete(ctx, mark.Name, metav1.DeleteOptions{DryRun: o.DryRun.Options(), Preconditions: &metav1.Preconditions{UID: &mark.UID, ResourceVersion: &mark.ResourceVersion}})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("kubectl nsinit off was run meanwhile, so new namespaces are not closed: %w", err)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := o.print(corev1.SchemeGroupVersion.WithKind("ConfigMap"), mark.Name, "deleted"); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(o.ErrOut, "Once nsinit works, nsinit-controller-manager closes new namespaces. To wait for it, run kubectl nsinit check --wait.")
	return nil
}

// print prints what was done with an object.
func (o *Options) print(kind schema.GroupVersionKind, name, operation string) error {
	o.PrintFlags.NamePrintFlags.Operation = operation + o.DryRun.Suffix()
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	object.SetGroupVersionKind(kind)
	return o.PrintFlags.Print(o.Out, object, nil)
}
