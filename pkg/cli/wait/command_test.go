/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package wait_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/wait"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

func namespace(name string, changes ...func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", CreationTimestamp: cmdtesting.Ago(time.Minute)}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func closed(n *corev1.Namespace) { n.Labels = map[string]string{v1alpha1.LabelInitializing: ""} }

func deleted(n *corev1.Namespace) {
	ago := cmdtesting.Ago(time.Minute)
	n.DeletionTimestamp, n.Finalizers = &ago, []string{"example.com/other", v1alpha1.NamespaceFinalizer}
	n.Spec.Finalizers = []corev1.FinalizerName{"kubernetes"}
}

func another(n *corev1.Namespace) { n.UID = "v" }

// reading returns a cluster in which the reads of namespaces return some, the last one again and again. After nil,
// none exists.
func reading(reads ...*corev1.Namespace) *cmdtesting.Cluster {
	cluster := cmdtesting.New(&v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec:   v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u", Finalizers: []v1alpha1.FinalizerName{"a.example.com", "kubernetes"}},
		Status: v1alpha1.NamespaceLifecycleStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionInitializing, Message: "waiting for b"}}}})
	cluster.Core.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		read := reads[0]
		reads = reads[min(1, len(reads)-1):]
		if read == nil {
			return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
		}
		return true, read, nil
	})
	return cluster
}

func TestWait(t *testing.T) {
	for name, test := range map[string]cmdtesting.Test{
		"open":               {Cluster: reading(namespace("shop", closed), namespace("shop")), Args: []string{"shop"}, Out: "namespace/shop is open\n"},
		"two":                {Cluster: reading(namespace("shop"), namespace("depot", closed), namespace("depot")), Args: []string{"shop", "depot"}, Out: "namespace/shop is open\nnamespace/depot is open\n"},
		"open, a field":      {Cluster: reading(namespace("shop")), Args: []string{"shop", "--output=jsonpath={.metadata.uid}"}, Out: "u"},
		"gone":               {Cluster: reading(namespace("shop", deleted), nil), Args: []string{"shop", "--for=gone"}, Out: "namespace/shop is gone\n"},
		"gone, the name":     {Cluster: reading(nil), Args: []string{"shop", "--for=gone", "-o", "name"}, Out: "namespace/shop\n"},
		"gone, a field":      {Cluster: reading(namespace("shop", deleted), nil), Args: []string{"shop", "--for=gone", "-o", "jsonpath={.metadata.uid}"}, Out: "u"},
		"gone, another came": {Cluster: reading(namespace("shop", deleted), namespace("shop", another)), Args: []string{"shop", "--for=gone"}, Out: "namespace/shop is gone\n"},

		"never there":                            {Cluster: reading(nil), Args: []string{"shop"}, Err: `namespace "shop" does not exist`},
		"replaced":                               {Cluster: reading(namespace("shop", closed), namespace("shop", another)), Args: []string{"shop"}, Err: "another one has this name"},
		"deleted":                                {Cluster: reading(namespace("shop", closed, deleted)), Args: []string{"shop"}, Err: `namespace "shop" is being deleted`},
		"the second is not":                      {Cluster: reading(namespace("shop"), nil), Args: []string{"shop", "depot"}, Out: "namespace/shop is open\n", Err: `namespace "depot" does not exist`},
		"another condition":                      {Args: []string{"shop", "--for=delete"}, Err: `--for=delete: must be "open" or "gone"`},
		"a negative timeout":                     {Args: []string{"shop", "--timeout=-1s"}, Err: `invalid argument "-1s" for "--timeout" flag: must not be negative`},
		"no such format":                         {Args: []string{"shop", "-o", "xml"}, Err: `output format "xml", allowed formats are:`},
		"no namespace":                           {Err: "the argument NAMESPACE is missing; for example:"},
		"not open in time":                       {Cluster: reading(namespace("shop", closed)), Args: []string{"shop", "--timeout=1ns"}, Err: `namespace "shop" is not open yet: waiting for b; see: kubectl nsinit why shop`},
		"not gone in time":                       {Cluster: reading(namespace("shop", deleted)), Args: []string{"shop", "--for=gone", "--timeout=1ns"}, Err: `namespace "shop" still exists; see: kubectl nsinit why shop`},
		"the timer is late":                      {Cluster: lateTimer(), Args: []string{"shop"}, Err: `namespace "shop" is not open yet; see: kubectl nsinit why shop`},
		"interrupted by users":                   {Cluster: interrupted(), Args: []string{"shop"}, Err: "interrupted"},
		"interrupted by users between two reads": {Cluster: interruptedBetweenReads(), Args: []string{"shop"}, Err: "interrupted"},
	} {
		t.Run(name, func(t *testing.T) { test.Check(t, wait.NewCommand) })
	}
}

// TestPermissionDeleted: the permission to get a namespace that is being deleted is deleted before the namespace. A dry run shows whether
// the namespace still exists.
func TestPermissionDeleted(t *testing.T) {
	exists := apierrors.NewAlreadyExists(corev1.Resource("namespaces"), "shop")
	for name, test := range map[string]struct {
		seen    *corev1.Namespace
		creates []error
		test    cmdtesting.Test
	}{
		"removed later": {namespace("shop", deleted), []error{exists, apierrors.NewServiceUnavailable("later"), exists, nil}, cmdtesting.Test{Out: "namespace/shop is gone\n"}},
		"no permission to create": {namespace("shop", deleted), []error{apierrors.NewForbidden(corev1.Resource("namespaces"), "shop", errors.New("not you"))},
			cmdtesting.Test{Err: `you may not get namespace "shop" any more: namespaces "shop" is forbidden: no; whether it still exists is not known, because you cannot create it either: namespaces "shop" is forbidden: not you`}},
		"its deletion was not seen": {namespace("shop"), []error{exists, nil}, cmdtesting.Test{Out: "namespace/shop is gone\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, reads := cmdtesting.New(), 0
			c.Core.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				if reads++; reads > 1 {
					return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "shop", errors.New("no"))
				}
				return true, test.seen, nil
			})
			c.Core.PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if !slices.Equal(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun, []string{metav1.DryRunAll}) {
					t.Error("the namespace is created in earnest")
				}
				err := test.creates[0]
				test.creates = test.creates[1:]
				return true, namespace("shop"), err
			})
			test.test.Cluster, test.test.Args = c, []string{"shop", "--for=gone"}
			test.test.Check(t, wait.NewCommand)
			if len(test.creates) > 0 {
				t.Errorf("%d creations were not tried", len(test.creates))
			}
		})
	}
}

func interrupted() *cmdtesting.Cluster {
	cluster := reading(namespace("shop", closed))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cluster.Context = ctx
	return cluster
}

// late is a context whose timer did not fire at its deadline.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// lateTimer refuses a request after the deadline, as the rate limiter of a client does.
func lateTimer() *cmdtesting.Cluster {
	cluster := reading(namespace("shop", closed))
	cluster.Core.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("rate: Wait(n=1) would exceed context deadline")
	})
	cluster.Context = late{context.Background()}
	return cluster
}

// interruptedBetweenReads ends the context after the read of the namespace, whose condition must not be reported in place of
// the NamespaceLifecycle.
func interruptedBetweenReads() *cmdtesting.Cluster {
	cluster := reading(namespace("shop", closed, func(n *corev1.Namespace) {
		n.Status.Conditions = []corev1.NamespaceCondition{{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue, Message: "waiting for b"}}
	}))
	ctx, cancel := context.WithCancel(context.Background())
	cluster.Nsinit.PrependReactor("get", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, nil, context.Canceled
	})
	cluster.Context = ctx
	return cluster
}

// TestProgress: what a namespace waits for is shown after a second, nsinit's participants by their names.
func TestProgress(t *testing.T) {
	reads := func(read *corev1.Namespace, end *corev1.Namespace) *cmdtesting.Cluster {
		list := make([]*corev1.Namespace, 8, 9)
		for i := range list {
			list[i] = read
		}
		return reading(append(list, end)...)
	}
	for name, test := range map[string]cmdtesting.Test{
		"deleted": {Cluster: reads(namespace("shop", deleted), nil), Args: []string{"shop", "--for=gone"}, Out: "namespace/shop is gone\n",
			ErrOut: "the namespace was deleted 1m1s ago, and waits for [kubernetes example.com/other a.example.com]\n"},
		"not deleted yet": {Cluster: reads(namespace("shop"), nil), Args: []string{"shop", "--for=gone"}, Out: "namespace/shop is gone\n", ErrOut: "waiting for the deletion of the namespace\n"},
	} {
		t.Run(name, func(t *testing.T) { test.Check(t, wait.NewCommand) })
	}
}

// TestComplete: only namespaces that can reach the state are offered.
func TestComplete(t *testing.T) {
	cluster := cmdtesting.New(namespace("opening", closed), namespace("open"), namespace("ending", deleted), namespace("ending-closed", deleted, closed))
	for name, test := range map[string]struct{ args, want []string }{
		"open":                {nil, []string{"opening"}},
		"none twice":          {[]string{"opening"}, nil},
		"gone":                {[]string{"--for=gone"}, []string{"ending", "ending-closed"}},
		"gone, and one given": {[]string{"--for=gone", "ending"}, []string{"ending-closed"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, cluster.Complete(t, wait.NewCommand, test.args...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
