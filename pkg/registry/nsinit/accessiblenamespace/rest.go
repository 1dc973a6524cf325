/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package accessiblenamespace serves AccessibleNamespaces: the core Namespaces that the requester may get. Nothing is stored.
package accessiblenamespace

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
)

// Resource is the name of the resource.
const Resource = "accessiblenamespaces"

// REST serves the resource.
type REST struct {
	*generic.Table[*nsinit.AccessibleNamespace]
	index *Index
}

var _ interface {
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.Getter
	rest.Lister
	rest.Watcher
} = (*REST)(nil)

// New returns the storage of the resource.
func New(index *Index) map[string]rest.Storage {
	return map[string]rest.Storage{Resource: &REST{Table: newTable(), index: index}}
}

// New implements rest.Storage.
func (*REST) New() runtime.Object { return &nsinit.AccessibleNamespace{} }

// NewList implements rest.Lister.
func (*REST) NewList() runtime.Object { return &nsinit.AccessibleNamespaceList{} }

// Destroy implements rest.Storage.
func (*REST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*REST) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (*REST) GetSingularName() string { return "accessiblenamespace" }

// ShortNames implements rest.ShortNamesProvider.
func (*REST) ShortNames() []string { return []string{"myns"} }

// Get implements rest.Getter.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	v, end, err := r.index.use(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	found, err := r.index.get(ctx, v, name)
	if err != nil {
		return nil, err
	}
	if found.namespace == nil || found.hidden {
		return nil, apierrors.NewNotFound(nsinit.Resource(Resource), name)
	}
	return v.object(found), nil
}

// List implements rest.Lister. It returns all objects, whatever the limit is.
func (r *REST) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	if options.Continue != "" {
		return nil, apierrors.NewBadRequest("continue: lists of this resource are not divided into pages: list again without it")
	}
	v, end, err := r.index.use(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := r.index.review(ctx, v, cachePeriod, nil); err != nil {
		return nil, err
	}
	if r.index.parse(v, options.ResourceVersion) == 0 && !anyVersion(options) || options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return nil, expired(options.ResourceVersion)
	}
	found, version := r.index.list(v, selectionOf(options))
	list := &nsinit.AccessibleNamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: text(version)}, Items: make([]nsinit.AccessibleNamespace, 0, len(found))}
	for _, seen := range found {
		list.Items = append(list.Items, *v.object(seen))
	}
	return list, nil
}

// Watch implements rest.Watcher. Without a resourceVersion, it begins with the namespaces that the user sees now.
func (r *REST) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	v, end, err := r.index.use(ctx)
	if err != nil {
		return nil, err
	}
	err = r.index.review(ctx, v, cachePeriod, nil)
	if err == nil && !r.index.admit(v) {
		err = apierrors.NewTooManyRequests(fmt.Sprintf("a user can have %d watches of this resource at each nsinit-apiserver: end one, or share it", maxWatches), 10)
	}
	if err != nil {
		end()
		return nil, err
	}
	w := &watcher{index: r.index, view: v, selection: selectionOf(options), options: options, result: make(chan watch.Event)}
	w.start()
	ctx, w.stop = context.WithCancel(ctx)
	go func() {
		defer end()
		defer close(w.result)
		w.run(ctx)
	}()
	return w, nil
}

// anyVersion returns whether a request accepts every version.
func anyVersion(options *internalversion.ListOptions) bool {
	return options.ResourceVersion == "" || options.ResourceVersion == "0"
}

// selection is what a request selects.
type selection struct {
	labels labels.Selector
	fields fields.Selector
	// hidden says that the request asks for namespaces that are being initialized: it selects by phase.
	hidden bool
}

func selectionOf(options *internalversion.ListOptions) selection {
	s := selection{labels: labels.Everything(), fields: fields.Everything()}
	if options.LabelSelector != nil {
		s.labels = options.LabelSelector
	}
	if options.FieldSelector != nil {
		s.fields = options.FieldSelector
		for _, requirement := range s.fields.Requirements() {
			s.hidden = s.hidden || requirement.Field == "status.phase"
		}
	}
	return s
}

// has returns whether a request selects a namespace.
func (s selection) has(seen state) bool {
	n := seen.namespace
	return n != nil && (!seen.hidden || s.hidden) && s.labels.Matches(labels.Set(n.Labels)) &&
		s.fields.Matches(fields.Set{"metadata.name": n.Name, "status.phase": string(utilnamespaces.Phase(n))})
}
