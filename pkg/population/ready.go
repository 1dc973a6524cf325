/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nsinit/nsinit/pkg/expressions"
)

// ReadyWhen describes when the stored object is ready. It is empty if that is when it is applied.
func (o *Object) ReadyWhen() string {
	var conditions []string
	if isQuota(o.Identity.Group, o.Identity.Kind) {
		conditions = append(conditions, "status.hard and status.used have every entry of spec.hard")
	}
	if o.ready != nil {
		conditions = append(conditions, o.ready.String())
	}
	return strings.Join(conditions, ", and ")
}

func isQuota(group, kind string) bool { return group == "" && kind == "ResourceQuota" }

// check returns an error if a stored object is not ready.
func (o *Object) check(namespace *corev1.Namespace, stored *unstructured.Unstructured) error {
	if isQuota(o.Identity.Group, o.Identity.Kind) {
		var quota corev1.ResourceQuota
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &quota); err != nil {
			return err
		}
		if missing := Uncounted(&quota); len(missing) > 0 {
			return fmt.Errorf("kube-controller-manager has not counted %s yet, so the quota is not in force", strings.Join(missing, ", "))
		}
	}
	if o.ready == nil {
		return nil
	}
	variables := expressions.KnownVariables(namespace)
	variables["object"] = stored.Object
	holds, err := o.ready.Holds(variables)
	if err == nil && !holds {
		err = fmt.Errorf("expression %q yields false", o.ready)
	}
	if err != nil {
		return fmt.Errorf("readyWhen: %w", err)
	}
	return nil
}

// Uncounted returns the entries of spec.hard that the status of a quota does not have, so that kube-apiserver does not enforce them.
// kube-controller-manager writes the status.
func Uncounted(quota *corev1.ResourceQuota) []string {
	var missing []string
	for name, hard := range quota.Spec.Hard {
		inForce, ok := quota.Status.Hard[name]
		if _, counted := quota.Status.Used[name]; !ok || !counted || inForce.Cmp(hard) != 0 {
			missing = append(missing, string(name))
		}
	}
	slices.Sort(missing)
	return missing
}

// awaitReady sets the error of each result whose object is not ready. In a new namespace, it reads such objects again, for less than a
// second. Later, the next call for the namespace decides, so that a worker does not wait for what may take long.
func (p *Populator) awaitReady(ctx context.Context, namespace *corev1.Namespace, results []result, isNew bool) {
	var waiting []*result
	for i := range results {
		isLast := !slices.ContainsFunc(results[i+1:], func(r result) bool { return r.stored != nil && r.Object.Identity == results[i].Object.Identity })
		switch r := &results[i]; {
		case r.stored == nil || !isLast: // the later manifest of an object counts
		case r.stored.GetDeletionTimestamp() != nil && !isMetadata(r.Entry):
			r.notReady(errDeleted)
		case r.Object.ReadyWhen() != "":
			waiting = append(waiting, r)
		}
	}
	if len(waiting) == 0 {
		return
	}
	backoff := wait.Backoff{Duration: 40 * time.Millisecond, Factor: 2, Steps: 1}
	if isNew && !p.late.Load() {
		backoff.Steps = 5
	}
	isRead := true
	late := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		waiting = slices.DeleteFunc(waiting, func(r *result) bool {
			if !isRead {
				r.stored, r.err = p.read(ctx, namespace, r.Object.Content)
			}
			if r.stored != nil {
				r.err = r.Object.check(namespace, r.stored)
			}
			return r.err == nil
		})
		isRead = false
		return len(waiting) == 0, nil
	})
	p.late.Store(late != nil)
	for _, r := range waiting {
		r.notReady(r.err)
	}
}

func (r *result) notReady(err error) {
	r.err = fmt.Errorf("%s %q is not ready: %w", r.Entry.Kind, r.Entry.Name, err)
	r.Entry.Message = messageOf(r.err)
}

// read returns a stored object.
func (a *Applier) read(ctx context.Context, namespace *corev1.Namespace, content *unstructured.Unstructured) (_ *unstructured.Unstructured, err error) {
	defer explain(&err, "read", content.GetKind(), content.GetName())
	client, err := a.resource(content.GroupVersionKind(), namespace.Name)
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, content.GetName(), metav1.GetOptions{})
}
