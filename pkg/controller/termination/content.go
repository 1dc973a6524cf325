/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package termination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/metadata"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

const (
	// resourcesAtOnce and deletionsAtOnce bound the requests for one namespace.
	resourcesAtOnce = 4
	deletionsAtOnce = 8
	// finalizerWait is the time between two checks of objects that finalizers hold.
	finalizerWait = 5 * time.Second
	// longestWait bounds the wait for a grace period, which a client may shorten.
	longestWait = 30 * time.Second
)

// content is the content of a namespace, and the errors.
type content struct {
	discovery, versions, deletion error

	mu sync.Mutex
	// remaining is the number of objects that are left, by resource.
	remaining map[schema.GroupVersionResource]int
	// finalizers is the number of objects that each finalizer holds.
	finalizers map[string]int
	// graceEnds is when the last grace period ends.
	graceEnds time.Time
}

// pods are deleted first: network policies must apply while a pod runs.
var pods = corev1.SchemeGroupVersion.WithResource("pods") //nolint:gochecknoglobals // a constant

// deleteContent deletes the pods, and then the objects of all other discovered resources. After an
// error it continues with the other resources, and returns the error at the end.
func (c *Controller) deleteContent(ctx context.Context, namespace *corev1.Namespace) (*content, error) {
	found := &content{remaining: map[schema.GroupVersionResource]int{}, finalizers: map[string]int{}}
	lists, err := c.Discover()
	found.discovery = err
	resources, err := utilnamespaces.Resources(lists)
	found.versions = err
	if slices.Contains(resources, pods) {
		if err := c.deleteResource(ctx, namespace.Name, pods, found); err != nil {
			found.deletion = fmt.Errorf("%s: %w", pods.GroupResource(), err)
		}
		if found.deletion != nil || found.remaining[pods] > 0 {
			return found, errors.Join(found.discovery, found.versions, found.deletion)
		}
		resources = slices.DeleteFunc(resources, func(r schema.GroupVersionResource) bool { return r == pods })
	}

	slices.SortFunc(resources, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	problems := make([]error, len(resources))
	var group errgroup.Group
	group.SetLimit(resourcesAtOnce)
	for i, resource := range resources {
		group.Go(func() error {
			if err := c.deleteResource(ctx, namespace.Name, resource, found); err != nil {
				problems[i] = fmt.Errorf("%s: %w", resource.GroupResource(), err)
			}
			return nil
		})
	}
	_ = group.Wait()
	found.deletion = utilerrors.NewAggregate(problems)
	return found, errors.Join(found.discovery, found.versions, found.deletion)
}

// deleteResource deletes the objects of one resource, and counts those that are left.
func (c *Controller) deleteResource(ctx context.Context, namespace string, resource schema.GroupVersionResource, found *content) error {
	client := c.Metadata.Resource(resource).Namespace(namespace)
	deleted, err := deleteAll(ctx, client)
	if deleted > 0 || err == nil {
		err = errors.Join(err, found.count(ctx, client, resource))
	}
	return err
}

// deleteAll deletes the objects that are not being deleted yet, and returns the number of requests.
func deleteAll(ctx context.Context, client metadata.ResourceInterface) (int, error) {
	var group errgroup.Group
	group.SetLimit(deletionsAtOnce)
	var mu sync.Mutex
	var problems []error
	tried := 0
	background := metav1.DeletePropagationBackground
	err := utilnamespaces.EachObject(ctx, client, func(object *metav1.PartialObjectMetadata) {
		if object.DeletionTimestamp != nil {
			return
		}
		tried++
		group.Go(func() error {
			err := client.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}, PropagationPolicy: &background})
			// The object is deleted already, or another one has its name.
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				mu.Lock()
				defer mu.Unlock()
				problems = append(problems, fmt.Errorf("cannot delete %q: %w", object.Name, err))
			}
			return nil
		})
	})
	_ = group.Wait()
	if len(problems) > 1 { // most have the same cause
		problems = []error{problems[0], fmt.Errorf("and %d more", len(problems)-1)}
	}
	return tried, utilerrors.NewAggregate(append(problems, err))
}

// count counts the objects of one resource that are left, and the finalizers that hold them.
func (f *content) count(ctx context.Context, client metadata.ResourceInterface, resource schema.GroupVersionResource) error {
	return utilnamespaces.EachObject(ctx, client, func(object *metav1.PartialObjectMetadata) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.remaining[resource]++
		for _, finalizer := range object.Finalizers {
			f.finalizers[finalizer]++
		}
		if object.DeletionTimestamp != nil && object.DeletionTimestamp.After(f.graceEnds) {
			f.graceEnds = object.DeletionTimestamp.Time
		}
	})
}

// wait returns the time until the next check. 0: nothing is left.
func (f *content) wait(now time.Time) time.Duration {
	if len(f.remaining) == 0 {
		return 0
	}
	if left := f.graceEnds.Sub(now); left > 0 {
		return min(left, longestWait)
	}
	if len(f.finalizers) > 0 || !f.graceEnds.IsZero() { // the kubelet of a pod may be gone
		return finalizerWait
	}
	return minRetryDelay
}
