/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package exemptions reads the list of namespaces that nsinit leaves alone. It is kept in
// a ConfigMap, which the admission policies read, too, so there is one list.
package exemptions

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Key is the key of the ConfigMap under which the names stand, one on each line.
const Key = "namespaces"

// List is the list of exempt namespaces, as it is now.
type List struct {
	namespace, name string
	informer        cache.SharedIndexInformer

	mu       sync.Mutex
	onChange []func()
}

// New returns a list that follows a ConfigMap once it runs.
func New(client kubernetes.Interface, namespace, name string) (*List, error) {
	informer := coreinformers.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	})
	l := &List{namespace: namespace, name: name, informer: informer}
	_, err := l.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { l.changed() },
		UpdateFunc: func(_, _ any) { l.changed() },
		DeleteFunc: func(any) { l.changed() },
	})
	return l, err
}

// Run follows the ConfigMap until the context ends.
func (l *List) Run(ctx context.Context) { l.informer.RunWithContext(ctx) }

// HasSynced says whether the ConfigMap was looked for once.
func (l *List) HasSynced() bool { return l.informer.HasSynced() }

// OnChange registers a function that is called when the list may have changed.
func (l *List) OnChange(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onChange = append(l.onChange, f)
}

func (l *List) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.onChange {
		f()
	}
}

// Has says whether a namespace is exempt. Without the ConfigMap nobody knows, and nothing
// may be done to any namespace.
func (l *List) Has(namespace string) (bool, error) {
	object, found, err := l.informer.GetStore().GetByKey(l.namespace + "/" + l.name)
	if err != nil {
		return false, err
	}
	configMap, ok := object.(*corev1.ConfigMap)
	if !found || !ok {
		return false, fmt.Errorf("ConfigMap %s/%s, which lists the namespaces that are exempt, is missing: apply artifacts/deploy again", l.namespace, l.name)
	}
	return Names(configMap).Has(namespace), nil
}

// Names returns the names in a ConfigMap.
func Names(configMap *corev1.ConfigMap) sets.Set[string] {
	names := sets.New[string]()
	for line := range strings.SplitSeq(configMap.Data[Key], "\n") {
		if line != "" {
			names.Insert(line)
		}
	}
	return names
}
