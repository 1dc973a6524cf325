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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1helper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/controller/gate"
	"github.com/nsinit/nsinit/pkg/installation"
)

const (
	// offLimit is how long kube-apiserver may take until it evaluates no removed policy any more.
	offLimit = 30 * time.Second
	// keyAPIService is the key of the ConfigMap with the APIService that off removed.
	keyAPIService = "apiService"
)

// Options are the options of both commands.
type Options struct {
	cmdutil.Base
	OpenClosed bool
	DryRun     cmdutil.DryRun

	run func(ctx context.Context) error
}

// NewOffCommand returns the command kubectl nsinit off.
func NewOffCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{}
	o.run = o.off
	command := newCommand(f, streams, o, &cobra.Command{
		Use:   "off",
		Short: "Stop closing new namespaces, also while nsinit does not run",
		Long: `Stop closing new namespaces. The command needs only kube-apiserver, so it is the way back if an installation or an upgrade fails.

It creates the ConfigMap nsinit-off, and removes what brings the stamp and the guard of creation into force. If the API of nsinit is not
available, it also removes the APIService, because Kubernetes removes no namespace while an API does not answer. Configurations and
NamespaceLifecycles are kept. It prints what it changes.

Closed namespaces stay closed until nsinit has initialized them. With --open-closed, the command opens them as they are.

To close new namespaces again: kubectl nsinit on`,
		Example: `  # What would change
  kubectl nsinit off --open-closed --dry-run=server

  # Stop closing new namespaces, and open those that are closed
  kubectl nsinit off --open-closed`,
	})
	command.Flags().BoolVar(&o.OpenClosed, "open-closed", false, "Open closed namespaces, without their remaining initializers.")
	return command
}

// NewOnCommand returns the command kubectl nsinit on.
func NewOnCommand(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{}
	o.run = o.on
	return newCommand(f, streams, o, &cobra.Command{
		Use:   "on",
		Short: "Close new namespaces again, after off",
		Long: `Close new namespaces again: restore the APIService if kubectl nsinit off removed it, and delete the ConfigMap nsinit-off. Once nsinit
works, nsinit-controller-manager brings the stamp and the guard of creation into force. Namespaces that were created meanwhile stay open.`,
		Example: `  # Close new namespaces again, and wait until they are
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
func (o *Options) Run(ctx context.Context) error {
	if _, err := o.PrintFlags.ToPrinter(); err != nil {
		return err
	}
	return o.run(ctx)
}

func (o *Options) off(ctx context.Context) error {
	self, err := cmdutil.Self(ctx, o.Clients.Core)
	if err != nil {
		return err
	}
	namespace := o.Clients.InstalledIn(ctx)
	marks, err := o.marks(ctx)
	if err != nil {
		return err
	}
	if len(marks) > 0 { // the command was run before, and may have removed the APIService, which names the namespace
		namespace = marks[0].Namespace
	}
	service, err := o.unavailable(ctx)
	if err != nil {
		return err
	}
	// The ConfigMap comes first, because the controller creates again what is removed without it.
	data := map[string]string{installation.OffUser: self.Username}
	if service != nil {
		saved, err := json.Marshal(apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: service.Name, Labels: service.Labels, Annotations: service.Annotations}, Spec: service.Spec})
		if err != nil {
			return err
		}
		data[keyAPIService] = string(saved)
	}
	if err := o.mark(ctx, namespace, data); err != nil {
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
	if err := o.open(ctx); err != nil || bool(o.DryRun) {
		return err
	}
	return o.verify(ctx)
}

// unavailable returns the APIService of nsinit if it is not available, or nil.
func (o *Options) unavailable(ctx context.Context) (*apiregistrationv1.APIService, error) {
	service, err := o.Clients.APIs.ApiregistrationV1().APIServices().Get(ctx, installation.APIService, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case apiregistrationv1helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available):
		return nil, nil
	}
	return service, nil
}

// marks returns the ConfigMaps that off created.
func (o *Options) marks(ctx context.Context) ([]corev1.ConfigMap, error) {
	list, err := o.Clients.Core.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", installation.Off).String()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// mark writes the ConfigMap. A former command may have saved the APIService in it.
func (o *Options) mark(ctx context.Context, namespace string, data map[string]string) error {
	configMaps := o.Clients.Core.CoreV1().ConfigMaps(namespace)
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

// open opens the namespaces that are closed, or counts them.
func (o *Options) open(ctx context.Context) error {
	namespaces := o.Clients.Core.CoreV1().Namespaces()
	list, err := namespaces.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelInitializing})
	if err != nil {
		return err
	}
	closed := 0
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
			return fmt.Errorf("cannot open namespace %q: %w", namespace.Name, err)
		}
		if err := o.print(corev1.SchemeGroupVersion.WithKind("Namespace"), namespace.Name, "opened"); err != nil {
			return err
		}
	}
	if closed > 0 {
		_, _ = fmt.Fprintf(o.ErrOut, "%d closed namespaces stay closed until nsinit has initialized them; to open them now, run kubectl nsinit off --open-closed\n", closed)
	}
	return nil
}

// verify waits until a new namespace is not closed.
func (o *Options) verify(ctx context.Context) error {
	deadline := o.Clients.Clock.Now().Add(offLimit)
	for {
		namespace, err := o.Clients.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "nsinit-off-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !helper.IsClosed(namespace) {
			_, _ = fmt.Fprintln(o.ErrOut, "New namespaces are not closed any more. To close them again, run kubectl nsinit on.")
			return nil
		}
		if !o.Clients.Clock.Now().Before(deadline) {
			if err == nil {
				err = errors.New("it gets the label " + v1alpha1.LabelInitializing + "; if kube-apiserver reads policies of nsinit from files, remove them on each control plane node (docs/install.md)")
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
	marks, err := o.marks(ctx)
	if err != nil {
		return err
	}
	if len(marks) == 0 {
		_, _ = fmt.Fprintln(o.ErrOut, "kubectl nsinit off was not run, or on was run since: nothing is changed.")
		return nil
	}
	for _, configMap := range marks {
		if err := o.restore(ctx, configMap.Data[keyAPIService]); err != nil {
			return err
		}
		err := o.Clients.Core.CoreV1().ConfigMaps(configMap.Namespace).Delete(ctx, configMap.Name, metav1.DeleteOptions{DryRun: o.DryRun.Options()})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err := o.print(corev1.SchemeGroupVersion.WithKind("ConfigMap"), configMap.Name, "deleted"); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintln(o.ErrOut, "Once nsinit works, nsinit-controller-manager closes new namespaces. To wait for it, run kubectl nsinit check --wait.")
	return nil
}

// restore creates the APIService that off removed, unless it exists.
func (o *Options) restore(ctx context.Context, saved string) error {
	if saved == "" {
		return nil
	}
	service := &apiregistrationv1.APIService{}
	if err := json.Unmarshal([]byte(saved), service); err != nil {
		return fmt.Errorf("cannot read the APIService that ConfigMap %s contains: %w; apply the manifests of nsinit again, which contain it, and delete the ConfigMap", installation.Off, err)
	}
	_, err := o.Clients.APIs.ApiregistrationV1().APIServices().Create(ctx, service, metav1.CreateOptions{DryRun: o.DryRun.Options()})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return err
	}
	return o.print(apiregistrationv1.SchemeGroupVersion.WithKind("APIService"), service.Name, "created")
}

// print prints what was done with an object.
func (o *Options) print(kind schema.GroupVersionKind, name, operation string) error {
	o.PrintFlags.NamePrintFlags.Operation = operation + o.DryRun.Suffix()
	printer, err := o.PrintFlags.ToPrinter()
	if err != nil {
		return err
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	object.SetGroupVersionKind(kind)
	return printer.PrintObj(object, o.Out)
}
