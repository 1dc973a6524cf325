/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/sdk/util/workers"
)

// busy is a namespace that is reconciled or gets objects of a rollout.
type busy struct {
	// next is the queue to which the namespace is added when this has ended, or nil.
	next workers.Queue
	// changed are the last versions of its objects that have changed meanwhile: until the end, it is not known who changed them.
	changed map[types.UID]string
	done    chan struct{}
}

func newBusy() *busy { return &busy{changed: map[types.UID]string{}, done: make(chan struct{})} }

// begin waits until a namespace is not busy, and makes it busy until end is called.
func (c *Controller) begin(ctx context.Context, name string) error {
	for {
		c.mu.Lock()
		b := c.busy[name]
		if b == nil {
			c.busy[name] = newBusy()
		}
		c.mu.Unlock()
		if b == nil {
			return nil
		}
		select {
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end queues a busy namespace if something is to be done in it, such as a repair of what another client has changed meanwhile.
func (c *Controller) end(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.busy[name]
	delete(c.busy, name)
	close(b.done)
	for uid, version := range b.changed {
		if !c.isOwn(uid, version) {
			b.next = c.repairs
		}
	}
	if b.next != nil {
		b.next.Add(name)
	}
}

// Wrote notes that this process has changed an object of a busy namespace, so that the event of the change starts no repair.
func (c *Controller) Wrote(stored metav1.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written[stored.GetUID()] = stored.GetResourceVersion()
}

// isOwn reports whether this process wrote a version of an object. It is true once. The caller holds mu.
func (c *Controller) isOwn(uid types.UID, version string) bool {
	written, known := c.written[uid]
	if known && written == version {
		delete(c.written, uid)
		return true
	}
	return false
}

// observed queues the namespaces of an object that has changed, unless this process changed it. An object that is new needs no repair if
// this process has not changed it before.
func (c *Controller) observed(object metav1.Object, isNew bool, namespaces sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, isWritten := c.written[object.GetUID()]
	for name := range namespaces {
		switch b := c.busy[name]; {
		case b != nil:
			b.changed[object.GetUID()] = object.GetResourceVersion()
		case isNew && !isWritten, c.isOwn(object.GetUID(), object.GetResourceVersion()):
		default:
			c.repairs.Add(name)
		}
	}
}

// deleted queues the namespaces of a deleted object.
func (c *Controller) deleted(object *metav1.PartialObjectMetadata) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, object.UID)
	for name := range namespacesOf(object) {
		c.repairs.Add(name)
	}
}

// namespacesOf returns the namespace of an object, or those that own a cluster-scoped one.
func namespacesOf(object *metav1.PartialObjectMetadata) sets.Set[string] {
	if object.Namespace != "" {
		return sets.New(object.Namespace)
	}
	names := sets.New[string]()
	for _, owner := range object.OwnerReferences {
		if owner.APIVersion == "v1" && owner.Kind == "Namespace" {
			names.Insert(owner.Name)
		}
	}
	return names
}
