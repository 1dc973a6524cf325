/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package requiredobjects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	// longest bounds the wait of a namespace while objects appear in other namespaces.
	longest = time.Minute
	// readTimeout bounds a live read.
	readTimeout = 5 * time.Second
)

// Missing is a required object that a namespace lacks.
type Missing struct {
	Object
	// Kind is empty if the resource was never found.
	Kind string
	// Unknown says that the object cannot be watched, so that it may exist.
	Unknown bool

	watch *objectWatch
}

// String names the object for a user, such as: ServiceAccount "default".
func (m Missing) String() string {
	kind := m.Kind
	if kind == "" {
		kind = m.Resource.String()
	}
	text := fmt.Sprintf("%s %q", kind, m.Name)
	if m.Unknown {
		text += " (which nsinit-controller-manager cannot watch: see its log)"
	}
	return text
}

// Describe names missing objects and who creates them, as far as that is known.
func Describe(missing []Missing) string {
	var names []string
	builtIn := true
	for _, m := range missing {
		names = append(names, m.String())
		builtIn = builtIn && slices.Contains(ByKubernetes(), m.Object)
	}
	text := strings.Join(names, " and ")
	if builtIn {
		text += ", which kube-controller-manager creates"
	}
	return text
}

// Missing returns the required objects that a namespace lacks, as the watches show them. It sends a request
// only for an object that may be that of a former namespace.
func (t *Tracker) Missing(ctx context.Context, namespace *corev1.Namespace) []Missing {
	var missing []Missing
	for _, w := range t.watches {
		exists, certain := w.seen(namespace)
		if !certain {
			exists = w.read(ctx, namespace.Name)
		}
		if !exists {
			missing = append(missing, w.missing())
		}
	}
	return missing
}

// Confirm reads missing objects live, and returns those that do not exist or cannot be read.
func (t *Tracker) Confirm(ctx context.Context, namespace *corev1.Namespace, missing []Missing) []Missing {
	var confirmed []Missing
	for _, m := range missing {
		if !m.watch.read(ctx, namespace.Name) {
			confirmed = append(confirmed, m.watch.missing())
		}
	}
	return confirmed
}

// Until returns when a namespace that has waited for missing objects since a time opens without them.
func (t *Tracker) Until(missing []Missing, since time.Time) time.Time {
	last := since
	for _, m := range missing {
		if appeared := m.watch.lastAppeared(); appeared.After(last) {
			last = appeared
		}
	}
	until, most := last.Add(t.Timeout), since.Add(t.Longest())
	if most.Before(until) {
		return most
	}
	return until
}

// Longest returns the longest time that a namespace waits.
func (t *Tracker) Longest() time.Duration { return max(t.Timeout, longest) }

// seen says whether the watch has the object of a namespace, and whether that is certain. See the
// documentation of the package.
func (w *objectWatch) seen(namespace *corev1.Namespace) (exists, certain bool) {
	stored, ok, _ := w.informer.GetStore().GetByKey(namespace.Name + "/" + w.Name) // a store has no error
	object, isMetadata := stored.(*metav1.PartialObjectMetadata)
	if !ok || !isMetadata || object.DeletionTimestamp != nil {
		return false, true
	}
	former := object.CreationTimestamp.Before(&namespace.CreationTimestamp)
	return !former, !former
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
		klog.FromContext(ctx).V(2).Info("Cannot read a required object", "object", w.Object, "namespace", namespace, "err", err)
		return false
	}
	return slices.ContainsFunc(list.Items, func(object metav1.PartialObjectMetadata) bool {
		return object.Name == w.Name && object.DeletionTimestamp == nil
	})
}

func (w *objectWatch) missing() Missing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Missing{Object: w.Object, Kind: w.kind, Unknown: w.problem != nil, watch: w}
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

// isProblem says whether an error of an informer is more than the end of a watch.
func isProblem(err error) bool {
	return !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}
