/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	nsinitinformers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// Name is the name of the controller in logs and metrics.
const Name = "objects"

const (
	// period is the time between two reviews of the component, of the policies, and of the objects that wait.
	period = 10 * time.Second
	// verifyPeriod is the time between two dry runs until kube-apiserver evaluates new policies.
	verifyPeriod = 200 * time.Millisecond
	// retryRejected is the time until kube-apiserver gets a configuration again that it did not compile. It can be upgraded meanwhile.
	retryRejected = 5 * time.Minute
	// settleDelay combines the changes of many objects into one count.
	settleDelay = time.Second

	workerCount   = 4
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = 30 * time.Second
)

// keyPolicies is the key of the queue for the policies and the status of every configuration. Other keys have the form
// resource/namespace/name.
const keyPolicies = "policies"

// Dependencies is what a Controller works with.
type Dependencies struct {
	Core       kubernetes.Interface
	Nsinit     versioned.Interface
	Metadata   metadata.Interface
	Exemptions *exemptions.List
	Events     record.EventRecorder
	Clock      clock.WithTicker
	// Namespace is that of nsinit.
	Namespace string
}

// Controller holds and releases pods and Jobs.
type Controller struct{ Dependencies }

// New returns a controller that is not running yet.
func New(d Dependencies) *Controller { return &Controller{d} }

// Run works until the context ends. While the component is not installed, it only says so.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	for ctx.Err() == nil {
		guard, err := c.installed(ctx)
		if err == nil {
			err = c.run(ctx, guard)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		klog.FromContext(ctx).Error(err, "Cannot hold pods and Jobs, retrying")
		select {
		case <-ctx.Done():
		case <-c.Clock.After(period):
		}
	}
	return nil
}

// installed returns the UID of the guard of the component, or "" if the component is not installed.
func (c *Controller) installed(ctx context.Context) (types.UID, error) {
	guard, err := c.Core.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, installation.ObjectsGuard, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cannot read whether the component objects is installed: %w", err)
	}
	return guard.UID, nil
}

// session is what the controller knows until the component is installed, or while it is.
type session struct {
	*Controller
	// guard is the UID of the guard that owns the policies, or "". The session ends when this changes.
	guard          types.UID
	end            context.CancelFunc
	queue          workers.Queue
	configurations listers.InitializerConfigurationLister
	// stores are the informers of pods, and of the metadata of Jobs, that wait, by resource. There are none without the component.
	stores map[string]cache.SharedIndexInformer
	// applied are the policies that this session wrote. Only one worker uses this and what follows at a time.
	applied applied
	// delay is the time until the next dry run, while kube-apiserver does not evaluate the policies.
	delay time.Duration
	// keepUntil is the time until which a configuration that was in force stays so, although the session has not verified it. It is zero when
	// the session has.
	keepUntil time.Time
	// rejected has the rejections of versions of configurations. All workers read it.
	rejected sync.Map
}

// resourceOf returns one of v1alpha1.HeldResources with its group and version.
func resourceOf(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.HeldResources()[resource], Version: "v1", Resource: resource}
}

// run works until the component is installed, removed or installed again.
func (c *Controller) run(ctx context.Context, guard types.UID) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	configurations := nsinitinformers.NewSharedInformerFactory(c.Nsinit, 0).Nsinit().V1alpha1().InitializerConfigurations()
	s := &session{
		Controller:     c,
		guard:          guard,
		end:            end,
		queue:          workers.NewQueue(Name, c.Clock, minRetryDelay, maxRetryDelay),
		configurations: configurations.Lister(),
		stores:         map[string]cache.SharedIndexInformer{},
	}
	if guard != "" {
		s.stores["pods"] = informers.NewSharedInformerFactoryWithOptions(c.Core, period, informers.WithTweakListOptions(onlyWaiting)).Core().V1().Pods().Informer()
		s.stores["jobs"] = metadatainformer.NewFilteredMetadataInformer(c.Metadata, resourceOf("jobs"), metav1.NamespaceAll, period, cache.Indexers{}, onlyWaiting).Informer()
	}
	defer s.queue.ShutDown()
	watch := func(informer cache.SharedIndexInformer, changed func(old, object any)) error {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { changed(nil, object) }, UpdateFunc: changed, DeleteFunc: func(object any) { changed(nil, object) },
		})
		if err == nil {
			go informer.RunWithContext(ctx)
		}
		return err
	}
	errs := []error{watch(configurations.Informer(), func(old, updated any) {
		if !sameInput(old, updated) {
			s.queue.Add(keyPolicies)
			for key := range s.waiting() {
				s.queue.Add(key)
			}
		}
	})}
	for resource, informer := range s.stores {
		errs = append(errs, informer.SetTransform(trim), watch(informer, func(old, object any) { s.enqueue(resource, old, object) }))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// The policies do not need the objects that wait, which cannot be listed if the rights of the component do not exist.
	cache.WaitForCacheSync(ctx.Done(), c.Exemptions.HasSynced, configurations.Informer().HasSynced)
	s.keepUntil = c.Clock.Now().Add(period)
	s.queue.Add(keyPolicies)
	workers.Run(ctx, s.queue, workerCount, s.reconcile)
	return nil
}

// onlyWaiting selects objects that wait.
func onlyWaiting(options *metav1.ListOptions) { options.LabelSelector = v1alpha1.LabelInitializing }

// trim is a cache.TransformFunc that keeps what decides about an object that waits.
func trim(object any) (any, error) {
	if accessor, ok := object.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
		accessor.SetAnnotations(nil)
	}
	if pod, ok := object.(*corev1.Pod); ok {
		pod.Spec, pod.Status = corev1.PodSpec{SchedulingGates: pod.Spec.SchedulingGates}, corev1.PodStatus{}
	}
	return object, nil
}

// sameInput says whether two versions of a configuration differ only in what this controller writes.
func sameInput(old, updated any) bool {
	before, _ := old.(*v1alpha1.InitializerConfiguration)
	after, _ := updated.(*v1alpha1.InitializerConfiguration)
	if before == nil || after == nil || before.UID != after.UID || before.Generation != after.Generation || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) {
		return false
	}
	return slices.EqualFunc(before.Status.Initializers, after.Status.Initializers, func(a, b v1alpha1.RegisteredInitializerStatus) bool {
		return a.Name == b.Name && a.Reporter == b.Reporter && a.ReportTime.Equal(b.ReportTime)
	})
}

// enqueue adds an object that waits or waited, and the count of the objects.
func (s *session) enqueue(resource string, old, object any) {
	waits := func(object any) bool {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		accessor, ok := object.(metav1.Object)
		return ok && len(helper.PendingOfObject(accessor)) > 0
	}
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil && (waits(old) || waits(object)) {
		s.queue.Add(resource + "/" + key)
		s.queue.AddAfter(keyPolicies, settleDelay)
	}
}

// waiting returns the pending initializers of each object that waits, by the key of the object. It returns nil while these objects are not
// known.
func (s *session) waiting() map[string][]string {
	all := map[string][]string{}
	for resource, informer := range s.stores {
		if !informer.HasSynced() {
			return nil
		}
		for _, object := range informer.GetStore().List() {
			if accessor, ok := object.(metav1.Object); ok && len(helper.PendingOfObject(accessor)) > 0 {
				all[resource+"/"+cache.MetaObjectToName(accessor).String()] = helper.PendingOfObject(accessor)
			}
		}
	}
	return all
}

// reconcile takes the next step with one object, or with the policies.
func (s *session) reconcile(ctx context.Context, key string) error {
	configurations, err := s.configurations.List(labels.Everything())
	if err != nil {
		return err
	}
	if key == keyPolicies {
		return s.reconcilePolicies(ctx, configurations, s.Exemptions.Current())
	}
	resource, name, _ := strings.Cut(key, "/")
	cached, exists, err := s.stores[resource].GetStore().GetByKey(name)
	object, ok := cached.(metav1.Object)
	if err != nil || !exists || !ok {
		return err
	}
	step, names, left := next(object, s.registered(configurations), s.Clock.Now())
	if step == release { // the cache can be old, and a storage that was lost must release nothing: the server then refuses lists
		live, err := s.Nsinit.NsinitV1alpha1().InitializerConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("cannot read which initializers are registered: %w", err)
		}
		configurations = nil
		for i := range live.Items {
			configurations = append(configurations, &live.Items[i])
		}
		step, names, left = next(object, s.registered(configurations), s.Clock.Now())
	}
	if left > 0 {
		s.queue.AddAfter(key, left)
	}
	if step == wait {
		return nil
	}
	return s.take(ctx, resource, object, step, names)
}
