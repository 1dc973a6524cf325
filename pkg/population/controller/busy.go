/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
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

// begin waits until a namespace is not busy, and makes it busy until end is called. An error means that the context has ended.
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
			return errors.New("it is being repaired")
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
		if !c.isOwn(name, uid, version) {
			b.next = c.repairs
		}
	}
	if b.next != nil {
		b.next.Add(name)
	}
}

// Wrote notes that this process has changed an object of a busy namespace, so that the event of the change starts no repair.
func (c *Controller) Wrote(namespace string, stored metav1.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written[namespace] == nil {
		c.written[namespace] = map[types.UID]string{}
	}
	c.written[namespace][stored.GetUID()] = stored.GetResourceVersion()
}

// Populated notes that this process has populated a namespace which is still closed, so that the event of the inventory starts no repair. It
// can come after that of the opening, which is then a change of an open namespace. What has drifted in a namespace that is known to be open
// could not be repaired before.
func (c *Controller) Populated(inventory *v1alpha1.PopulatedNamespace) {
	known, err := c.inventories.Get(inventory.Name)
	hasCome := err == nil && known.UID == inventory.UID && known.ResourceVersion == inventory.ResourceVersion
	if c.isClosed(inventory.Name) && !hasCome && isApplied(inventory) {
		c.Wrote(inventory.Name, inventory)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(inventory.Name, inventory.UID)
}

// isPopulated reports whether a namespace got all of its objects before it opened, according to what is known of its inventory.
func (c *Controller) isPopulated(inventory *v1alpha1.PopulatedNamespace) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, populated := c.written[inventory.Name][inventory.UID]
	return populated || isApplied(inventory)
}

func isApplied(inventory *v1alpha1.PopulatedNamespace) bool {
	return meta.IsStatusConditionTrue(inventory.Status.Conditions, v1alpha1.ConditionApplied)
}

// isOwn reports whether this process wrote a version of an object. It is true once. The caller holds mu.
func (c *Controller) isOwn(namespace string, uid types.UID, version string) bool {
	if written, known := c.written[namespace][uid]; !known || written != version {
		return false
	}
	c.forget(namespace, uid)
	return true
}

// forget forgets what was written to an object. The caller holds mu.
func (c *Controller) forget(namespace string, uid types.UID) {
	if delete(c.written[namespace], uid); len(c.written[namespace]) == 0 {
		delete(c.written, namespace)
	}
}

// observed queues the namespaces of an object that has changed, unless this process changed it. An object that is new needs no repair if
// this process has not changed it before.
func (c *Controller) observed(object metav1.Object, isNew bool, namespaces sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range namespaces {
		_, isWritten := c.written[name][object.GetUID()]
		switch b := c.busy[name]; {
		case b != nil:
			b.changed[object.GetUID()] = object.GetResourceVersion()
		case isNew && !isWritten, c.isOwn(name, object.GetUID(), object.GetResourceVersion()):
		default:
			c.repairs.Add(name)
		}
	}
}

// deleted queues the namespaces of a deleted object.
func (c *Controller) deleted(object *metav1.PartialObjectMetadata) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range namespacesOf(object) {
		c.forget(name, object.UID)
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
