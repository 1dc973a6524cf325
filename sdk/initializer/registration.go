/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
)

// register registers the initializer, and retries until it has or the context ends: nsinit may start later than the initializer,
// and an administrator can fix what refuses the registration.
func (r *Runner) register(ctx context.Context) {
	logger := klog.FromContext(ctx)
	backoff := wait.Backoff{Duration: minRetryDelay, Factor: 2, Steps: 20, Cap: maxRetryDelay}
	_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := r.tryToRegister(ctx); err != nil {
			logger.Error(err, "Cannot register the initializer yet, retrying: new namespaces do not wait for it unless a configuration has it",
				"configuration", r.options.Registration.Configuration)
			return false, nil
		}
		r.registered.Store(true)
		return true, nil
	})
}

// tryToRegister creates the configuration, or adds the initializer to the existing one.
func (r *Runner) tryToRegister(ctx context.Context) error {
	client, want := r.options.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations(), r.options.Registration
	entry := want.Initializer
	entry.Name = r.options.Name
	r.align(&entry)
	stored, err := client.Get(ctx, want.Configuration, metav1.GetOptions{})
	if utilapierrors.IsAbsent(err) {
		_, err = client.Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: want.Configuration}, Initializers: []v1alpha1.RegisteredInitializer{entry},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if stored.DeletionTimestamp != nil {
		return fmt.Errorf("the configuration is being deleted")
	}
	if i := r.entry(stored); i < 0 {
		stored.Initializers = append(stored.Initializers, entry)
	} else if !r.align(&stored.Initializers[i]) {
		return nil
	}
	_, err = client.Update(ctx, stored, metav1.UpdateOptions{})
	return err
}

// entry returns the index of the initializer in a configuration, or -1.
func (r *Runner) entry(configuration *v1alpha1.NamespaceInitializerConfiguration) int {
	return slices.IndexFunc(configuration.Initializers, func(i v1alpha1.RegisteredInitializer) bool { return i.Name == r.options.Name })
}

// align sets what the code decides in the entry of the initializer, and says whether it changed: without a function Finalize, no client
// would release the namespaces.
func (r *Runner) align(entry *v1alpha1.RegisteredInitializer) bool {
	holds := r.options.Registration.Initializer.Holds
	switch finalizer := r.options.Finalize != nil; {
	case entry.Finalizer != finalizer:
		entry.Finalizer, entry.Holds = finalizer, holds
	case entry.Holds == nil && holds != nil:
		entry.Holds = holds // without it, Kubernetes deletes what Finalize needs
	default:
		return false
	}
	return true
}
