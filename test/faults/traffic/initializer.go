/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/test/faults/history"
)

// errInjected is what an initializer that fails on purpose returns.
var errInjected = errors.New("an error on purpose")

// runInitializer runs an initializer on the SDK until the context ends. It dies at random, and is started
// again, until there are no crashes any more.
func (t *Traffic) runInitializer(ctx, crashing context.Context, name string) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), name))
	for ctx.Err() == nil {
		life, end := context.WithCancel(ctx)
		if crashing.Err() == nil {
			life, end = context.WithTimeout(ctx, t.between(time.Second, 20*time.Second))
			// Without crashes, the last life goes on from a new start.
			release := context.AfterFunc(crashing, end)
			defer release()
		}
		runner, err := t.initializer(crashing, name)
		if err == nil {
			err = runner.Run(life)
		}
		end()
		if err != nil {
			klog.FromContext(ctx).Error(err, "The initializer ended")
		}
		t.sleep(ctx, 50*time.Millisecond, 500*time.Millisecond)
	}
}

// initializer returns an initializer that puts one result into each namespace, or acts on pods and Jobs.
func (t *Traffic) initializer(crashing context.Context, name string) (*initializer.Runner, error) {
	config := t.user(t.options.Initializers, name, history.RoleInitializer, initializerUser)
	config.Timeout = 0 // the SDK watches
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	nsinit, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	options := initializer.Options{
		Name: name, Core: core, Nsinit: nsinit, Workers: 4, Events: &record.FakeRecorder{},
		Initialize: func(ctx context.Context, namespace *corev1.Namespace) error {
			if err := t.misbehave(ctx, crashing); err != nil {
				return err
			}
			if t.chance(0.2) {
				_ = initializer.Progress(ctx, "it is under way") // nothing depends on it
			}
			if err := leaveResult(ctx, core, name, namespace); err != nil {
				return err
			}
			if crashing.Err() == nil && t.chance(0.02) {
				return initializer.Fail(errInjected)
			}
			return t.misbehave(ctx, crashing)
		},
	}
	if slices.Contains(objectInitializers(), name) {
		options.Initialize = nil
		options.InitializeObject = func(ctx context.Context, _ initializer.Object) error {
			t.sleep(crashing, 0, time.Second) // meddlers come first
			return t.misbehave(ctx, crashing)
		}
	}
	if name == participant || name == holder {
		options.Finalize = func(ctx context.Context, namespace *corev1.Namespace) error {
			if err := t.misbehave(ctx, crashing); err != nil {
				return err
			}
			if t.chance(0.1) { // it takes longer than kube-controller-manager needs to delete the content
				t.sleep(crashing, 6*time.Second, 10*time.Second)
			}
			operation := t.options.Recorder.Begin(name, history.RoleInitializer)
			operation.Verb, operation.Resource, operation.Name = history.VerbCleanup, "outside", namespace.Name
			operation.NamespaceUID, operation.Outcome = namespace.UID, history.Acknowledged
			t.options.Recorder.End(operation)
			return t.misbehave(ctx, crashing)
		}
	}
	return initializer.New(options)
}

// leaveResult applies the one object that an initializer leaves in a namespace.
func leaveResult(ctx context.Context, core kubernetes.Interface, name string, namespace *corev1.Namespace) error {
	result := applycorev1.ConfigMap("result-"+name, namespace.Name).WithAnnotations(map[string]string{
		history.AnnotationInitializer: name, history.AnnotationNamespaceUID: string(namespace.UID),
	})
	ctx, cancel := context.WithTimeout(history.WithNamespace(ctx, namespace.UID), requestTimeout)
	defer cancel()
	_, err := core.CoreV1().ConfigMaps(namespace.Name).Apply(ctx, result, metav1.ApplyOptions{FieldManager: name, Force: true})
	return err
}

// misbehave panics, fails or hangs at times.
func (t *Traffic) misbehave(ctx, crashing context.Context) error {
	if crashing.Err() != nil {
		return nil
	}
	switch n := t.pick(100); {
	case n < 3:
		panic("a panic on purpose") //nolint:forbidigo // what the SDK must survive
	case n < 8:
		return errInjected
	case n < 11:
		t.sleep(ctx, 200*time.Millisecond, 2*time.Second)
	}
	return ctx.Err()
}

// flap changes the configurations all the time: initializers come, go and change their order.
func (t *Traffic) flap(ctx context.Context) {
	admin, err := t.admin("flapping")
	if err != nil {
		return
	}
	for i := 0; t.sleep(ctx, 500*time.Millisecond, 3*time.Second); i++ {
		t.flapOnce(ctx, admin, fmt.Sprintf("%s%02d-flap", NamePrefix, t.pick(3)))
	}
}

// flapOnce creates, changes or deletes a configuration.
func (t *Traffic) flapOnce(ctx context.Context, admin versioned.Interface, name string) {
	client := admin.NsinitV1alpha1().NamespaceInitializerConfigurations()
	ignore, soon := v1alpha1.Ignore, int32(1)
	activation := []v1alpha1.ActivationPolicy{v1alpha1.ActivationAlways, v1alpha1.ActivationWhenServed}[t.pick(2)]
	entries := []v1alpha1.RegisteredInitializer{{Name: optional, Ordering: t.ordering(), Activation: &activation}}
	if t.chance(0.2) {
		entries = append(entries, v1alpha1.RegisteredInitializer{Name: ghost, FailurePolicy: &ignore, TimeoutSeconds: &soon, Ordering: t.ordering()})
	}
	stored, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, _ = client.Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: entries}, metav1.CreateOptions{})
	case err != nil:
	case t.chance(0.5):
		_ = client.Delete(ctx, name, metav1.DeleteOptions{})
	default:
		stored.Initializers = entries
		_, _ = client.Update(ctx, stored, metav1.UpdateOptions{})
	}
}

// ordering returns one of the places that an initializer can have: after all before it, at the beginning, or after
// participant, which waits for none.
func (t *Traffic) ordering() *v1alpha1.InitializerOrdering {
	return []*v1alpha1.InitializerOrdering{nil, {}, {After: []string{participant}}}[t.pick(3)]
}

// readLifecycles reads lifecycles and configurations, for the check of linearizability.
func (t *Traffic) readLifecycles(ctx context.Context) {
	admin, err := t.admin("reader")
	if err != nil {
		return
	}
	core, err := kubernetes.NewForConfig(t.options.Servers[0])
	if err != nil {
		return
	}
	for t.sleep(ctx, 200*time.Millisecond, 400*time.Millisecond) {
		names, err := Names(ctx, core, t.options.Prefix)
		if err != nil || len(names) == 0 {
			continue
		}
		for range 3 {
			_, _ = admin.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, names[t.pick(len(names))], metav1.GetOptions{})
		}
	}
}
