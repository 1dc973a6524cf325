/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package requiredobjects

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Name is the name of the tracker in logs.
const Name = "required-objects"

// Dependencies is what a Tracker works with.
type Dependencies struct {
	Objects  []Object
	Metadata metadata.Interface
	// Mapper finds the version and the kind of a resource. Its errors are retried.
	Mapper meta.RESTMapper
	Clock  clock.PassiveClock
	// Timeout bounds the wait for an object that appears in no namespace.
	Timeout time.Duration
}

// Tracker watches the required objects in all namespaces.
type Tracker struct {
	Dependencies

	watches []*objectWatch
}

// objectWatch watches one required object in all namespaces.
type objectWatch struct {
	Object
	client   metadata.Interface
	mapper   meta.RESTMapper
	clock    clock.PassiveClock
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// kind is empty until the resource was found.
	kind string
	// problem is why the last list or watch failed, or nil.
	problem error
	// started is when the watch began, and appeared when an object last appeared in a namespace, if one did.
	started, appeared time.Time
}

// New returns a tracker that is not running yet.
func New(d Dependencies) (*Tracker, error) {
	t := &Tracker{Dependencies: d}
	for _, object := range d.Objects {
		w := &objectWatch{Object: object, client: d.Metadata, mapper: d.Mapper, clock: d.Clock}
		w.informer = cache.NewSharedIndexInformer(w.listWatch(), &metav1.PartialObjectMetadata{}, 0, nil)
		if err := w.informer.SetTransform(strip); err != nil {
			return nil, err
		}
		if err := w.informer.SetWatchErrorHandlerWithContext(w.failed); err != nil {
			return nil, err
		}
		t.watches = append(t.watches, w)
	}
	return t, nil
}

// OnChange registers a function to call with the name of each namespace in which a required object appeared
// or changed. Call it before Run.
func (t *Tracker) OnChange(changed func(namespace string)) error {
	for _, w := range t.watches {
		if _, err := w.informer.AddEventHandler(w.handler(changed)); err != nil {
			return fmt.Errorf("cannot watch %s: %w", w.Object, err)
		}
	}
	return nil
}

// Informers returns the informer of each object, in the order of the objects.
func (t *Tracker) Informers() []cache.SharedIndexInformer {
	var informers []cache.SharedIndexInformer
	for _, w := range t.watches {
		informers = append(informers, w.informer)
	}
	return informers
}

// Run watches the objects until the context ends.
func (t *Tracker) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	var running sync.WaitGroup
	for _, w := range t.watches {
		w.mu.Lock()
		w.started = t.Clock.Now()
		w.mu.Unlock()
		running.Go(func() { w.informer.RunWithContext(ctx) })
	}
	running.Wait()
	return nil
}

// handler notes when an object appears in a namespace, and calls changed.
func (w *objectWatch) handler(changed func(namespace string)) cache.ResourceEventHandler {
	notify := func(object any) {
		if accessor, err := meta.Accessor(object); err == nil {
			changed(accessor.GetNamespace())
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if !isInInitialList {
				w.mu.Lock()
				w.appeared = w.clock.Now()
				w.mu.Unlock()
			}
			notify(object)
		},
		UpdateFunc: func(_, object any) { notify(object) },
	}
}

// listWatch lists and watches the metadata of the object in all namespaces. A resource that is not served
// is an error of the list, which the informer retries.
func (w *objectWatch) listWatch() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			resource, err := w.resource()
			if err != nil {
				meta.MaybeResetRESTMapper(w.mapper) // the resource may be served by the next retry
				return nil, err
			}
			list, err := resource.List(ctx, selected(options, w.Name))
			return list, w.answered(err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			resource, err := w.resource()
			if err != nil {
				meta.MaybeResetRESTMapper(w.mapper) // the resource may be served by the next retry
				return nil, err
			}
			events, err := resource.Watch(ctx, selected(options, w.Name))
			return events, w.answered(err)
		},
	}, w.client)
}

// selected returns the options of a list or watch of the objects of one name. RBAC then treats the name as
// the name of the request.
func selected(options metav1.ListOptions, name string) metav1.ListOptions {
	options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return options
}

// resource returns the client of the resource in its preferred version.
func (w *objectWatch) resource() (metadata.Getter, error) {
	gvk, err := w.mapper.KindFor(w.Resource.WithVersion(""))
	if err != nil {
		return nil, fmt.Errorf("cannot find the resource %s: %w", w.Resource, err)
	}
	mapping, err := w.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("cannot find the resource %s: %w", w.Resource, err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, fmt.Errorf("the resource %s is not namespaced", w.Resource)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kind = gvk.Kind
	return w.client.Resource(mapping.Resource), nil
}

// answered clears the problem after a success, and returns the error.
func (w *objectWatch) answered(err error) error {
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.problem = nil
	}
	return err
}

// failed stores why a list or watch failed, and logs it once. An informer lists again after a watch that
// has expired, which is no problem.
func (w *objectWatch) failed(ctx context.Context, _ *cache.Reflector, err error) {
	if !isProblem(err) {
		return
	}
	w.mu.Lock()
	before := w.problem
	w.problem = err
	w.mu.Unlock()
	if before == nil || before.Error() != err.Error() {
		klog.FromContext(ctx).Error(err, "Cannot watch a required object, so each namespace waits for it until the timeout: "+
			"grant list and watch of it to nsinit-controller-manager, or remove it from --required-objects", "object", w.Object)
	}
}

// strip keeps what a Tracker reads of the metadata of an object. Without its resourceVersion, the informer
// would not report updates.
func strip(object any) (any, error) {
	full, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: full.Namespace, Name: full.Name, ResourceVersion: full.ResourceVersion,
		CreationTimestamp: full.CreationTimestamp, DeletionTimestamp: full.DeletionTimestamp,
	}}, nil
}
