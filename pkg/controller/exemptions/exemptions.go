/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package exemptions

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/installation"
)

// List is the current list of exemptions.
type List struct {
	namespace string
	informer  cache.SharedIndexInformer
	onChange  []func()
	// current is nil while the ConfigMap was not read, or does not exist.
	current atomic.Pointer[installation.ExemptionList]
}

// New returns a list that is not running yet.
func New(client kubernetes.Interface, namespace string) *List {
	return &List{namespace: namespace,
		informer: coreinformers.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", installation.Exemptions).String()
		})}
}

// OnChange registers a function to call when the list may have changed, or does not exist. Call it before Run.
func (l *List) OnChange(f func()) { l.onChange = append(l.onChange, f) }

// Run watches the ConfigMap until the context ends, and logs its changes.
func (l *List) Run(ctx context.Context) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "configMap", klog.KRef(l.namespace, installation.Exemptions))
	registration, err := cache.NewTypedSharedIndexInformer[*corev1.ConfigMap](l.informer).AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    func(configMap *corev1.ConfigMap) { l.changed(logger, configMap) },
		UpdateFunc: func(_, configMap *corev1.ConfigMap) { l.changed(logger, configMap) },
		DeleteFunc: func(coreinformers.DeletedConfigMap) {
			l.current.Store(nil)
			l.missing(logger)
		},
	})
	if err != nil {
		return fmt.Errorf("cannot watch the ConfigMap %s/%s: %w", l.namespace, installation.Exemptions, err)
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) && l.current.Load() == nil {
			l.missing(logger)
		}
	}()
	l.informer.RunWithContext(ctx)
	return nil
}

// HasSynced says whether the ConfigMap was listed once.
func (l *List) HasSynced() bool { return l.informer.HasSynced() }

func (l *List) changed(logger klog.Logger, configMap *corev1.ConfigMap) {
	list := installation.ParseExemptions(configMap)
	l.current.Store(list)
	logger.Info("Read the list of exemptions", "entries", list.Len())
	for _, line := range list.Malformed {
		logger.Error(nil, "The list of exemptions has a line without effect", "line", line)
	}
	l.notify()
}

func (l *List) missing(logger klog.Logger) {
	logger.Error(nil, "The list of exemptions does not exist, so no namespace is changed. Apply the manifests or the chart of nsinit again")
	l.notify()
}

func (l *List) notify() {
	for _, f := range l.onChange {
		f()
	}
}

// Current returns the list, or nil while the ConfigMap has not been read or does not exist.
func (l *List) Current() *installation.ExemptionList { return l.current.Load() }

// Has says whether a namespace is exempt by its name. It is not known while the ConfigMap has not been read or does not exist.
func (l *List) Has(name, generateName string) (exempt, known bool) {
	list := l.current.Load()
	return list != nil && list.ExemptName(name, generateName) != nil, list != nil
}
