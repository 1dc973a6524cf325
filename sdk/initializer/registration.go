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
	entry.Name, entry.Finalizer = r.options.Name, r.options.Finalize != nil
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
	i := slices.IndexFunc(stored.Initializers, func(i v1alpha1.RegisteredInitializer) bool { return i.Name == r.options.Name })
	switch {
	case i < 0:
		stored.Initializers = append(stored.Initializers, entry)
	case stored.Initializers[i].Finalizer != entry.Finalizer:
		// The code decides: without a function Finalize, no client would release the namespaces.
		stored.Initializers[i].Finalizer, stored.Initializers[i].Holds = entry.Finalizer, entry.Holds
	case stored.Initializers[i].Holds == nil && entry.Holds != nil:
		stored.Initializers[i].Holds = entry.Holds // without it, Kubernetes deletes what Finalize needs
	default:
		return nil
	}
	_, err = client.Update(ctx, stored, metav1.UpdateOptions{})
	return err
}
