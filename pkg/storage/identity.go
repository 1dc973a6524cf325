/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

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

	"github.com/nsinit/nsinit/sdk/util/cached"
)

const (
	// Key is the key of the identity in the ConfigMap.
	Key = "id"

	// reviewInterval is how often both identities are compared while they are equal. It bounds
	// the time until a change of the ConfigMap takes effect if no client calls Confirm.
	reviewInterval = 2 * time.Second
	// retryInterval is how often they are compared while they differ.
	retryInterval = time.Second
	// reviewTimeout bounds one comparison, and confirmTimeout one that requests wait for. A request waits for at most two.
	reviewTimeout  = 5 * time.Second
	confirmTimeout = 2 * time.Second
)

// ErrUndecodable is the error of Store.Read, wrapped, for an identity that cannot be decoded.
var ErrUndecodable = errors.New("the identity of the storage cannot be decoded")

// errExchanged is the problem of a process whose storage was replaced by another one.
var errExchanged = errors.New("the storage of nsinit was replaced while nsinit-apiserver ran: it restarts, because its caches are of the earlier storage")

// Store keeps the identity in the storage that it identifies.
type Store interface {
	// Read returns the identity, or "" if there is none. It is a linearizable read. If the
	// identity cannot be decoded, the error wraps ErrUndecodable.
	Read(ctx context.Context) (string, error)
	// Create writes an identity if there is none, or none that can be decoded. It returns the
	// stored one, which another process may have written.
	Create(ctx context.Context, id string) (string, error)
}

// Identity verifies that the storage is the one in use.
type Identity struct {
	store           Store
	configMaps      typedcorev1.ConfigMapsGetter
	namespace, name string
	clock           clock.WithTicker
	suspect         chan struct{}
	confirmations   cached.Reads[struct{}]

	mu sync.Mutex
	// first is the identity that this process read first, or nil. The caches of this process are of
	// the storage with this identity. While the storage is trusted, both places have it.
	first *string
	// created is the last identity that this process tried to write into a storage without one, or "".
	created string
	// changed is true if this process read another identity later.
	changed bool
	// trust ends, with endTrust, when the storage must not be trusted any more. Its cause is the reason.
	trust    context.Context
	endTrust context.CancelCauseFunc
}

// NewIdentity returns an Identity that trusts no storage before Run. The namespace and the name are those of the
// ConfigMap.
func NewIdentity(store Store, configMaps typedcorev1.ConfigMapsGetter, namespace, name string, clock clock.WithTicker) *Identity {
	i := &Identity{
		store: store, configMaps: configMaps, namespace: namespace, name: name, clock: clock,
		suspect: make(chan struct{}, 1),
	}
	i.trust, i.endTrust = context.WithCancelCause(context.Background())
	i.endTrust(errors.New("the storage has not been identified yet"))
	i.confirmations.What, i.confirmations.Read, i.confirmations.Clock = "the identity of the storage", i.confirm, clock
	return i
}

// Run compares both places until the context ends. It returns an error when the storage was replaced while the process ran. The
// watch caches then mix objects of both storages, and the process must restart. The revisions of the two storages are unrelated, so
// the caches do not detect that.
func (i *Identity) Run(ctx context.Context) error {
	for {
		i.review(ctx)
		problem, wait := i.Problem(), reviewInterval
		switch {
		case errors.Is(problem, errExchanged):
			return problem
		case problem != nil:
			wait = retryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-i.suspect:
		case <-i.clock.After(wait):
		}
	}
}

// Problem returns the last known reason not to trust the storage, or nil.
func (i *Identity) Problem() error { return context.Cause(i.Trust()) }

// Trust returns a context that ends, with the reason as its cause, when the storage must not be trusted any more.
func (i *Identity) Trust() context.Context {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.trust
}

// Verify reads the identity in the storage, and returns why the storage must not be trusted, or nil. If
// it returns nil, all earlier reads were from the storage in use.
func (i *Identity) Verify(ctx context.Context) error {
	_, err := i.verify(ctx)
	return err
}

// Confirm reads the identity in both places, and returns why the storage must not be trusted, or
// nil. A missing ConfigMap is no problem, and is written again. Callers share reads that began after their calls.
func (i *Identity) Confirm(ctx context.Context) error {
	_, err := i.confirmations.Do(ctx)
	return err
}

// confirm is Confirm for all callers that share a read.
func (i *Identity) confirm(ctx context.Context) (none struct{}, err error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	id, err := i.verify(ctx)
	if err != nil {
		return none, err
	}
	configMap, err := i.configMaps.ConfigMaps(i.namespace).Get(ctx, i.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		i.reviewSoon()
		return none, nil
	case err != nil:
		return none, i.unreadable(err)
	case configMap.Data[Key] != id:
		return none, i.distrust(i.mismatch(id, configMap.Data[Key]))
	}
	return none, nil
}

// verify is Verify, and also returns the identity.
func (i *Identity) verify(ctx context.Context) (string, error) {
	i.mu.Lock()
	first, problem := i.first, context.Cause(i.trust)
	i.mu.Unlock()
	if problem != nil {
		return "", problem
	}
	stored, err := i.read(ctx)
	switch {
	case errors.Is(err, ErrUndecodable):
		return "", i.distrust(i.undecodable(err))
	case err != nil:
		return "", fmt.Errorf("cannot read the identity of the storage: %w", err)
	case stored != *first:
		return "", i.distrust(i.mismatch(stored, *first))
	}
	return stored, nil
}

// read reads the identity in the storage, and detects a change.
func (i *Identity) read(ctx context.Context) (string, error) {
	stored, err := i.store.Read(ctx)
	if err != nil && !errors.Is(err, ErrUndecodable) {
		return "", err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	// If the response to create was lost, the next read finds what it wrote.
	createdByUs := i.first != nil && *i.first == "" && stored == i.created
	switch {
	case i.first != nil && (err != nil || *i.first != stored && !createdByUs):
		i.changed = true
	case err == nil:
		i.first = &stored
	}
	return stored, err
}

// create writes an identity into a storage without one. The storage stays the same, unless it has changed before.
func (i *Identity) create(ctx context.Context) (string, error) {
	id := uuid.NewString()
	i.mu.Lock()
	i.created = id
	i.mu.Unlock()
	stored, err := i.store.Create(ctx, id)
	if err != nil {
		return "", fmt.Errorf("cannot write the identity of a new storage: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.changed {
		i.first = &stored
	}
	return stored, nil
}

// distrust sets the problem of a trusted storage, and returns it.
func (i *Identity) distrust(problem error) error {
	i.mu.Lock()
	if i.trust.Err() == nil {
		i.set(problem)
	}
	i.mu.Unlock()
	i.reviewSoon()
	return problem
}

// set sets the problem of the storage, or none. The caller holds the lock.
func (i *Identity) set(problem error) {
	if problem == nil && i.trust.Err() == nil {
		return
	}
	i.endTrust(problem) // if the storage was trusted
	if i.trust, i.endTrust = context.WithCancelCause(context.Background()); problem != nil {
		i.endTrust(problem)
	}
}

// reviewSoon makes Run compare both places now.
func (i *Identity) reviewSoon() {
	select {
	case i.suspect <- struct{}{}:
	default:
	}
}

// review compares both places, and creates a missing identity if that is safe.
func (i *Identity) review(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	id, err := i.compare(ctx)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "configMap", klog.KRef(i.namespace, i.name))

	i.mu.Lock()
	defer i.mu.Unlock()
	before := context.Cause(i.trust)
	var lost *mismatchError
	switch {
	case err == nil && i.changed:
		logger.Error(errExchanged, "The storage was replaced", "id", id)
		i.set(errExchanged)
	case err == nil:
		if before != nil {
			logger.Info("The storage is identified: NamespaceLifecycles are served", "id", id)
		}
		i.set(nil)
	case errors.As(err, &lost):
		if before == nil || before.Error() != err.Error() {
			logger.Error(err, "NamespaceLifecycles are refused")
		}
		i.set(err)
	case before != nil:
		// Without a comparison, an earlier mismatch remains.
		if !errors.As(before, &lost) {
			if before.Error() != err.Error() {
				logger.Error(err, "Cannot identify the storage: NamespaceLifecycles are refused")
			}
			i.set(err)
		}
	default:
		logger.V(2).Info("Cannot compare the identity of the storage", "err", err)
	}
}

// compare returns the identity that both places have, after it created a missing one. It reads the
// ConfigMap first, which is written last: if it exists, the storage has or had an identity.
func (i *Identity) compare(ctx context.Context) (string, error) {
	configMap, configMapErr := i.configMaps.ConfigMaps(i.namespace).Get(ctx, i.name, metav1.GetOptions{})
	if configMapErr != nil && !apierrors.IsNotFound(configMapErr) {
		return "", i.unreadable(configMapErr)
	}
	stored, err := i.read(ctx)
	undecodable := errors.Is(err, ErrUndecodable)
	switch {
	case undecodable && configMapErr == nil:
		return "", i.undecodable(err)
	case err != nil && !undecodable:
		return "", fmt.Errorf("cannot read the identity of the storage: %w", err)
	case configMapErr == nil && stored != "" && stored == configMap.Data[Key]:
		return stored, nil
	case configMapErr == nil:
		return "", i.mismatch(stored, configMap.Data[Key])
	case undecodable || stored == "":
		if stored, err = i.create(ctx); err != nil {
			return "", err
		}
	}
	return stored, i.publish(ctx, stored)
}

// publish writes the ConfigMap. If another replica was first, the next comparison reads that ConfigMap.
func (i *Identity) publish(ctx context.Context, id string) error {
	_, err := i.configMaps.ConfigMaps(i.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: i.name,
			Annotations: map[string]string{
				"kubernetes.io/description": "Names the storage that nsinit uses. If that storage is lost, nsinit refuses requests for NamespaceLifecycles, so that no " +
					"namespace opens unpopulated. To continue with an empty storage, restore the configurations, then delete this ConfigMap.",
			},
		},
		Data: map[string]string{Key: id},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("cannot write the ConfigMap %s/%s, which names the storage in use: %w", i.namespace, i.name, err)
	}
	return nil
}

// mismatchError is the error for a storage that is not the one in use.
type mismatchError struct{ message string }

func (e *mismatchError) Error() string { return e.message }

func (i *Identity) unreadable(err error) error {
	return fmt.Errorf("cannot read the ConfigMap %s/%s, which names the storage in use: %w", i.namespace, i.name, err)
}

func (i *Identity) mismatch(stored, published string) error {
	what := fmt.Sprintf("the storage is another one: it is %q, but %q is in use", stored, published)
	if stored == "" {
		what = fmt.Sprintf("the storage was lost: it is empty, but %q is in use", published)
	}
	return i.untrusted(what)
}

func (i *Identity) undecodable(err error) error {
	return i.untrusted(fmt.Sprintf("the storage is damaged: %v; another identity is in use", err))
}

func (i *Identity) untrusted(what string) error {
	return &mismatchError{fmt.Sprintf("%s, according to ConfigMap %s/%s: NamespaceLifecycles are refused and namespaces stay closed. Restore the storage, "+
		"or create the configurations again and then acknowledge the loss: kubectl -n %s delete configmap %s", what, i.namespace, i.name, i.namespace, i.name)}
}
