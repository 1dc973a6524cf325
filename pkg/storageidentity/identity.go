/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storageidentity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// Key is the key of the ConfigMap under which the identity stands.
	Key = "id"

	// reviewInterval is how often both places are compared while they agree, which
	// brings a ConfigMap back that somebody deleted. What is in the storage alone is
	// looked at much more often, by whoever calls Verify.
	reviewInterval = 30 * time.Second
	// retryInterval is how often they are compared while they do not.
	retryInterval = time.Second
	// reviewTimeout bounds one comparison.
	reviewTimeout = 5 * time.Second
)

// Store keeps the identity in the storage that it identifies.
type Store interface {
	// Read returns the identity, or "" if there is none. It reads consistently.
	Read(ctx context.Context) (string, error)
	// Create writes an identity where there is none, and returns the one that is there
	// afterwards, which may be another's.
	Create(ctx context.Context, id string) (string, error)
}

// Identity knows whether the storage is the right one.
type Identity struct {
	store           Store
	configMaps      typedcorev1.ConfigMapsGetter
	namespace, name string
	clock           clock.WithTicker
	suspect         chan struct{}

	mu sync.Mutex
	// id is the identity on which both places agreed last, "" before they ever did.
	id string
	// problem is why the storage must not be trusted, nil if it may.
	problem error
}

// New returns an Identity that trusts nothing before it runs. The ConfigMap's namespace and
// name are given.
func New(store Store, configMaps typedcorev1.ConfigMapsGetter, namespace, name string, clock clock.WithTicker) *Identity {
	return &Identity{
		store: store, configMaps: configMaps, namespace: namespace, name: name, clock: clock,
		suspect: make(chan struct{}, 1),
		problem: errors.New("the storage has not been identified yet"),
	}
}

// Run compares both places until the context ends.
func (i *Identity) Run(ctx context.Context) {
	for {
		i.review(ctx)
		wait := reviewInterval
		if i.Problem() != nil {
			wait = retryInterval
		}
		timer := i.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-i.suspect:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// Problem returns why the storage must not be trusted, as far as is known, or nil.
func (i *Identity) Problem() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.problem
}

// Verify reads the identity in the storage, and returns why the storage must not be trusted,
// or nil. Whatever was read from the storage before the call was read from the right one.
func (i *Identity) Verify(ctx context.Context) error {
	i.mu.Lock()
	id, problem := i.id, i.problem
	i.mu.Unlock()
	if problem != nil {
		return problem
	}
	stored, err := i.store.Read(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the identity of the storage: %w", err)
	}
	if stored == id {
		return nil
	}
	problem = i.mismatch(stored, id)
	i.mu.Lock()
	if i.id == id && i.problem == nil {
		i.problem = problem
	}
	i.mu.Unlock()
	select {
	case i.suspect <- struct{}{}:
	default:
	}
	return problem
}

// review compares both places, and makes what is missing where that is safe.
func (i *Identity) review(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	id, err := i.compare(ctx)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "configMap", klog.KRef(i.namespace, i.name))

	i.mu.Lock()
	defer i.mu.Unlock()
	var lost *mismatchError
	switch {
	case err == nil:
		if i.problem != nil || i.id != id {
			logger.Info("The storage is identified: records are served", "id", id)
		}
		i.id, i.problem = id, nil
	case errors.As(err, &lost):
		if i.problem == nil || i.problem.Error() != err.Error() {
			logger.Error(err, "Records are refused")
		}
		i.problem = err
	case i.id == "" || i.problem != nil:
		// Nothing is known for certain. What was known before stays.
		if !errors.As(i.problem, &lost) {
			if i.problem.Error() != err.Error() {
				logger.Error(err, "Cannot identify the storage yet: records are refused")
			}
			i.problem = err
		}
	default:
		logger.V(2).Info("Cannot compare the identity of the storage", "err", err)
	}
}

// compare returns the identity on which both places agree, after it made what was missing.
// The ConfigMap, which is written last, is read first: where it is found, the storage has
// its identity, or had it.
func (i *Identity) compare(ctx context.Context) (string, error) {
	configMap, configMapErr := i.configMaps.ConfigMaps(i.namespace).Get(ctx, i.name, metav1.GetOptions{})
	if configMapErr != nil && !apierrors.IsNotFound(configMapErr) {
		return "", fmt.Errorf("cannot read the ConfigMap %s/%s, which names the storage that is in use: %w", i.namespace, i.name, configMapErr)
	}
	stored, err := i.store.Read(ctx)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read the identity of the storage: %w", err)
	case configMapErr == nil && stored != "" && stored == configMap.Data[Key]:
		return stored, nil
	case configMapErr == nil:
		return "", i.mismatch(stored, configMap.Data[Key])
	case stored == "":
		if stored, err = i.store.Create(ctx, uuid.NewString()); err != nil {
			return "", fmt.Errorf("cannot write the identity of a new storage: %w", err)
		}
	}
	return stored, i.publish(ctx, stored)
}

// publish writes the ConfigMap. If another replica was first, the next comparison finds
// what it wrote.
func (i *Identity) publish(ctx context.Context, id string) error {
	_, err := i.configMaps.ConfigMaps(i.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: i.name,
			Annotations: map[string]string{
				"kubernetes.io/description": "Names the storage that nsinit uses. Should that be lost, nsinit refuses records, so that no " +
					"namespace opens unpopulated. Restore the configurations, and delete this ConfigMap to go on with the empty storage.",
			},
		},
		Data: map[string]string{Key: id},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("cannot write the ConfigMap %s/%s, which names the storage that is in use: %w", i.namespace, i.name, err)
	}
	return nil
}

// mismatchError says that the storage is not the one that is in use.
type mismatchError struct{ message string }

func (e *mismatchError) Error() string { return e.message }

func (i *Identity) mismatch(stored, published string) error {
	what := fmt.Sprintf("nsinit's storage is another one: it is %q, but %q is in use", stored, published)
	if stored == "" {
		what = fmt.Sprintf("nsinit's storage was lost: it is empty, but %q is in use", published)
	}
	return &mismatchError{fmt.Sprintf("%s, by ConfigMap %s/%s; records are refused, and namespaces stay closed. Bring the storage back, "+
		"or create the configurations again and then acknowledge: kubectl -n %s delete configmap %s", what, i.namespace, i.name, i.namespace, i.name)}
}
