/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// RequiredObject is an object that every usable namespace has, such as its ServiceAccount "default".
type RequiredObject struct {
	Resource schema.GroupResource
	Name     string
}

// String returns the object as ParseRequiredObjects reads it.
func (o RequiredObject) String() string { return o.Resource.String() + "/" + o.Name }

// ObjectsByKubernetes returns the objects that kube-controller-manager creates in every namespace. A pod needs both of them.
func ObjectsByKubernetes() []RequiredObject {
	return []RequiredObject{
		{Resource: schema.GroupResource{Resource: "serviceaccounts"}, Name: "default"},
		{Resource: schema.GroupResource{Resource: "configmaps"}, Name: "kube-root-ca.crt"},
	}
}

// ParseRequiredObjects reads objects in the form resource[.group]/name. Its error names the first wrong one.
func ParseRequiredObjects(texts []string) ([]RequiredObject, error) {
	var objects []RequiredObject
	for _, text := range texts {
		resource, name, ok := strings.Cut(text, "/")
		object := RequiredObject{Resource: schema.ParseGroupResource(resource), Name: name}
		switch reasons := content.IsPathSegmentName(name); {
		case !ok || object.Resource.Resource == "" || name == "":
			return nil, fmt.Errorf("%q: write resource[.group]/name, such as serviceaccounts/default", text)
		case len(reasons) > 0:
			return nil, fmt.Errorf("%q: the name %s", text, reasons[0])
		case slices.Contains(objects, object):
			return nil, fmt.Errorf("%q: it is listed twice", text)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// objectWatch watches the metadata of one required object in all namespaces. A namespace therefore costs no separate request. The watch
// can be behind, in two ways:
//
//   - It lacks an object that exists. The namespace waits for the event, or for the end of the wait. Then a live read decides.
//   - It still has an object of a former namespace of the same name. Kubernetes deletes these objects before it removes the namespace, and
//     accepts none while a namespace terminates. So an object that was created at or after the namespace belongs to it.
//     kube-controller-manager begins to delete five seconds after the namespace was deleted, which is more than the whole seconds of
//     creation times and common differences between the clocks of several kube-apiservers can hide. An object that was created before the
//     namespace is a former one, or its kube-apiserver's clock is behind. A live read decides this, because the namespace exists when the
//     read begins.
//
// In a burst, kube-controller-manager creates the objects at a limited rate. So the wait ends when no such object appeared in any namespace
// for --required-objects-timeout. Objects that a tenant deletes and creates again in an open namespace do not count.
type objectWatch struct {
	RequiredObject
	client metadata.Interface
	// mapper finds the version and the kind of the resource. Its errors are retried.
	mapper meta.RESTMapper
	clock  clock.PassiveClock
	// changed is called with the name of each namespace in which the object appeared or changed.
	changed func(namespace string)
	// counts says whether an object that appears shows that others may appear soon.
	counts   func(object *metav1.PartialObjectMetadata) bool
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// kind is empty until the resource was found.
	kind string
	// problem is why the last list or watch failed, or nil.
	problem error
	// started is when the watch began, and appeared when an object last appeared in a namespace, if one did.
	started, appeared time.Time
}

// prepare makes the informer, which does not run yet.
func (w *objectWatch) prepare() error {
	w.informer = cache.NewSharedIndexInformer(w.listWatch(), &metav1.PartialObjectMetadata{}, 0, nil)
	if err := w.informer.SetTransform(strip); err != nil {
		return err
	}
	if err := w.informer.SetWatchErrorHandlerWithContext(w.failed); err != nil {
		return err
	}
	handler := cache.TypedResourceEventHandlerDetailedFuncs[*metav1.PartialObjectMetadata]{
		AddFunc: func(object *metav1.PartialObjectMetadata, isInInitialList bool) {
			if !isInInitialList && w.counts(object) {
				w.mu.Lock()
				w.appeared = w.clock.Now()
				w.mu.Unlock()
			}
			w.changed(object.Namespace)
		},
		UpdateFunc: func(_, object *metav1.PartialObjectMetadata) { w.changed(object.Namespace) },
	}
	if _, err := cache.NewTypedSharedIndexInformer[*metav1.PartialObjectMetadata](w.informer).AddTypedEventHandler(handler); err != nil {
		return fmt.Errorf("cannot watch %s: %w", w.RequiredObject, err)
	}
	return nil
}

// run watches the object until the context ends.
func (w *objectWatch) run(ctx context.Context) {
	w.mu.Lock()
	w.started = w.clock.Now()
	w.mu.Unlock()
	w.informer.RunWithContext(ctx)
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
				return nil, err // a list follows
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

// failed stores why a list or watch failed, and logs it once. An informer lists again after a watch that has ended or expired, which is no
// problem.
func (w *objectWatch) failed(ctx context.Context, _ *cache.Reflector, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	w.mu.Lock()
	before := w.problem
	w.problem = err
	w.mu.Unlock()
	if before == nil || before.Error() != err.Error() {
		klog.FromContext(ctx).Error(err, "Cannot watch a required object, so each namespace opens without it after the timeout: "+
			"grant list and watch of it to nsinit-controller-manager, or remove it from --required-objects", "object", w.RequiredObject)
	}
}

// strip keeps what is read of the metadata of an object. Without its resourceVersion, the informer would not report updates.
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

// exists says whether a namespace has the object, as the watch shows it. It sends a request only for an object that may be that of a
// former namespace.
func (w *objectWatch) exists(ctx context.Context, namespace *corev1.Namespace) bool {
	stored, _, _ := w.informer.GetStore().GetByKey(namespace.Name + "/" + w.Name) // a store has no error
	object, ok := stored.(*metav1.PartialObjectMetadata)
	if !ok || object.DeletionTimestamp != nil {
		return false
	}
	return !object.CreationTimestamp.Before(&namespace.CreationTimestamp) || w.read(ctx, namespace.Name)
}

// read says whether the object exists in a namespace, by a live read. It lists with a field selector,
// which needs no permission but that of the watch.
func (w *objectWatch) read(ctx context.Context, namespace string) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	resource, err := w.resource()
	if err != nil {
		return false
	}
	list, err := resource.Namespace(namespace).List(ctx, selected(metav1.ListOptions{}, w.Name))
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read a required object", "object", w.RequiredObject, "namespace", namespace, "err", err)
		return false
	}
	return slices.ContainsFunc(list.Items, func(object metav1.PartialObjectMetadata) bool {
		return object.Name == w.Name && object.DeletionTimestamp == nil
	})
}

// lastAppeared returns when the object last appeared in a namespace, or a zero time. Until the first list
// ends, it may have appeared since the watch began.
func (w *objectWatch) lastAppeared() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.problem == nil && !w.informer.HasSynced() {
		return w.started
	}
	return w.appeared
}

// describe names the object for a user, such as: ServiceAccount "default".
func (w *objectWatch) describe() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := w.kind
	if kind == "" {
		kind = w.Resource.String()
	}
	text := fmt.Sprintf("%s %q", kind, w.Name)
	if w.problem != nil {
		text += " (which nsinit-controller-manager cannot watch: see its log)"
	}
	return text
}

// describeAll names missing objects and who creates them, as far as that is known.
func describeAll(missing []*objectWatch) string {
	var names []string
	builtIn := true
	for _, w := range missing {
		names = append(names, w.describe())
		builtIn = builtIn && slices.Contains(ObjectsByKubernetes(), w.RequiredObject)
	}
	text := strings.Join(names, " and ")
	if builtIn {
		text += ", which kube-controller-manager creates"
	}
	return text
}

// missing returns the required objects that a namespace lacks, as the watches show them.
func (c *Controller) missing(ctx context.Context, namespace *corev1.Namespace) []*objectWatch {
	return slices.DeleteFunc(slices.Clone(c.required), func(w *objectWatch) bool { return w.exists(ctx, namespace) })
}

// opensAt returns when a namespace that has waited for missing objects since a time opens without them.
func (c *Controller) opensAt(missing []*objectWatch, since time.Time) time.Time {
	last := since
	for _, w := range missing {
		if appeared := w.lastAppeared(); appeared.After(last) {
			last = appeared
		}
	}
	return last.Add(c.RequiredTimeout)
}
