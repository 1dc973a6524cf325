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
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// shop is the namespace shop, closed or changed.
func shop(changes ...func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u", Labels: map[string]string{v1alpha1.LabelInitializing: ""}}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func open(n *corev1.Namespace) { n.Labels = nil }

func reports(reason, message string) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) {
		n.Status.Conditions = []corev1.NamespaceCondition{{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue, Reason: reason, Message: message}}
	}
}

// lifecycle is of shop, with some initializers.
func lifecycle(message string, initializers ...v1alpha1.InitializerStatus) *v1alpha1.NamespaceLifecycle {
	return &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u"},
		Status: v1alpha1.NamespaceLifecycleStatus{Initializers: initializers, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionInitializing, Message: message}}}}
}

func initializer(name string, state v1alpha1.InitializerState, ended time.Duration) v1alpha1.InitializerStatus {
	began := metav1.NewMicroTime(cmdtesting.Now())
	status := v1alpha1.InitializerStatus{Name: name, State: state, StartTime: &began}
	if ended > 0 {
		end := metav1.NewMicroTime(began.Add(ended))
		status.EndTime = &end
	}
	return status
}

// world is a cluster in which shop is created.
type world struct {
	// create is the error of the creation.
	create error
	// reads are what the reads of the namespace return, the last one again and again. A nil one is not found.
	reads []*corev1.Namespace
	// lifecycles are the same for the NamespaceLifecycle. With none, it may not be read.
	lifecycles []*v1alpha1.NamespaceLifecycle
	// failures are the errors of the first reads.
	failures []error
	// created is what was sent.
	created []clienttesting.CreateActionImpl
}

func (w *world) cluster() *cmdtesting.Cluster {
	cluster := cmdtesting.New()
	cluster.Core.PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		sent := action.(clienttesting.CreateActionImpl)
		w.created = append(w.created, sent)
		created := sent.Object.DeepCopyObject().(*corev1.Namespace)
		created.UID = "u"
		return true, created, w.create
	})
	cluster.Core.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(w.failures) > 0 {
			err := w.failures[0]
			w.failures = w.failures[1:]
			return true, nil, err
		}
		read := w.reads[0]
		w.reads = w.reads[min(1, len(w.reads)-1):]
		if read == nil {
			return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
		}
		return true, read, nil
	})
	cluster.Nsinit.PrependReactor("get", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(w.lifecycles) == 0 {
			return true, nil, apierrors.NewForbidden(v1alpha1.SchemeGroupVersion.WithResource("namespacelifecycles").GroupResource(), "shop", errors.New("no"))
		}
		read := w.lifecycles[0]
		w.lifecycles = w.lifecycles[min(1, len(w.lifecycles)-1):]
		return true, read, nil
	})
	return cluster
}

func TestCreate(t *testing.T) {
	const created = "namespace/shop created\n"
	waiting := shop(reports(v1alpha1.ReasonPending, "waiting for initializer \"a.example.com\""))
	for name, test := range map[string]struct {
		world world
		test  cmdtesting.Test
	}{
		"open from the beginning": {world{reads: []*corev1.Namespace{shop(open)}}, cmdtesting.Test{Args: []string{"shop"}, Out: created + "namespace/shop is open after 0s\n"}},
		"every initializer": {world{reads: []*corev1.Namespace{shop(), shop(), shop(open)}, lifecycles: []*v1alpha1.NamespaceLifecycle{
			lifecycle("waiting for a", initializer("a.example.com", v1alpha1.InitializerRunning, 0)),
			lifecycle("waiting for b", initializer("a.example.com", v1alpha1.InitializerDone, 90*time.Millisecond), initializer("b.example.com", v1alpha1.InitializerRunning, 0)),
			lifecycle("", initializer("a.example.com", v1alpha1.InitializerDone, 90*time.Millisecond), initializer("b.example.com", v1alpha1.InitializerSkipped, 220*time.Millisecond),
				initializer(v1alpha1.InitializerLifecycle, v1alpha1.InitializerDone, time.Second)),
		}}, cmdtesting.Test{Args: []string{"shop"}, Out: created + "initializer.nsinit.dev/a.example.com done after 90ms\n" +
			"initializer.nsinit.dev/b.example.com skipped after 220ms\nnamespace/shop is open after 230ms\n"}},
		"a tenant": {world{reads: []*corev1.Namespace{shop(), waiting, waiting, shop(open)}},
			cmdtesting.Test{Args: []string{"shop"}, Out: created + "waiting for initializer \"a.example.com\"\nnamespace/shop is open after 380ms\n"}},
		"only the name": {world{reads: []*corev1.Namespace{waiting, shop(open)}},
			cmdtesting.Test{Args: []string{"shop", "-o", "name"}, Out: "namespace/shop\n", ErrOut: "waiting for initializer \"a.example.com\"\n"}},
		"a field of what is open": {world{reads: []*corev1.Namespace{shop(), shop(open)}}, cmdtesting.Test{Args: []string{"shop", "--output=jsonpath={.kind} {.metadata}"},
			Out: `Namespace {"name":"shop","uid":"u"}`}},
		"no wait":          {world{}, cmdtesting.Test{Args: []string{"shop", "--wait=false"}, Out: created}},
		"no wait, as YAML": {world{}, cmdtesting.Test{Args: []string{"shop", "--wait=false", "-o", "yaml"}, Out: "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  uid: u\nspec: {}\nstatus: {}\n"}},
		"a dry run":        {world{}, cmdtesting.Test{Args: []string{"shop", "--dry-run=server"}, Out: "namespace/shop created (server dry run)\n"}},
		"reads that fail at first": {world{failures: []error{apierrors.NewServiceUnavailable("later"), apierrors.NewInternalError(errors.New("x"))}, reads: []*corev1.Namespace{shop(open)}},
			cmdtesting.Test{Args: []string{"shop"}, Out: created + "namespace/shop is open after 230ms\n"}},

		"it failed": {world{reads: []*corev1.Namespace{shop(reports(v1alpha1.ReasonFailed, "a.example.com: no such cost centre"))}},
			cmdtesting.Test{Args: []string{"shop"}, Out: created + "a.example.com: no such cost centre\n", Err: `the initialization of namespace "shop" failed: a.example.com: no such cost centre`}},
		"it is being deleted": {world{reads: []*corev1.Namespace{shop(func(n *corev1.Namespace) { now := cmdtesting.Ago(0); n.DeletionTimestamp = &now })}},
			cmdtesting.Test{Args: []string{"shop"}, Out: created, Err: `namespace "shop" is being deleted`}},
		"it was deleted": {world{reads: []*corev1.Namespace{waiting, nil}},
			cmdtesting.Test{Args: []string{"shop"}, Out: created + "waiting for initializer \"a.example.com\"\n", Err: `namespace "shop" was deleted before it was open: waiting for initializer`}},
		"another one has its name": {world{reads: []*corev1.Namespace{shop(func(n *corev1.Namespace) { n.UID = "v" })}},
			cmdtesting.Test{Args: []string{"shop"}, Out: created, Err: "another one has this name"}},
		"reads that fail":    {world{failures: []error{errors.New("no connection")}}, cmdtesting.Test{Args: []string{"shop"}, Out: created, Err: "no connection"}},
		"it cannot be":       {world{create: errors.New("no rights")}, cmdtesting.Test{Args: []string{"shop"}, Err: "no rights"}},
		"it exists, open":    {world{create: exists(), reads: []*corev1.Namespace{shop(open)}}, cmdtesting.Test{Args: []string{"shop"}, Err: `namespaces "shop" already exists`}},
		"it exists, closed":  {world{create: exists(), reads: []*corev1.Namespace{shop()}}, cmdtesting.Test{Args: []string{"shop"}, Err: "already exists, and is not open yet: run kubectl nsinit wait shop"}},
		"a negative timeout": {world{}, cmdtesting.Test{Args: []string{"shop", "--timeout=-1s"}, Err: `invalid argument "-1s" for "--timeout" flag: must not be negative`}},
		"no such dry run":    {world{}, cmdtesting.Test{Args: []string{"shop", "--dry-run=client"}, Err: `invalid argument "client" for "--dry-run" flag: must be "none" or "server"`}},
		"no such format":     {world{}, cmdtesting.Test{Args: []string{"shop", "-o", "xml"}, Err: `output format "xml", allowed formats are:`}},
		"no name":            {world{}, cmdtesting.Test{Err: "the argument NAME is missing; for example:"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.test.Cluster = test.world.cluster()
			test.test.Check(t, wait.NewCreateCommand)
		})
	}
}

func exists() error { return apierrors.NewAlreadyExists(corev1.Resource("namespaces"), "shop") }

// TestRequest: flags become the request.
func TestRequest(t *testing.T) {
	w := world{}
	if _, _, err := w.cluster().Run(t, wait.NewCreateCommand, "shop", "--labels=team=a,stage=b", "--annotations=c=d", "--dry-run=server"); err != nil {
		t.Fatal(err)
	}
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a", "stage": "b"}, Annotations: map[string]string{"c": "d"}}}
	if diff := cmp.Diff(want, w.created[0].Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(metav1.CreateOptions{FieldManager: "kubectl-nsinit-create", DryRun: []string{metav1.DryRunAll}}, w.created[0].CreateOptions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEnds: after the timeout, or an interrupt, the namespace still exists.
func TestEnds(t *testing.T) {
	for name, test := range map[string]struct {
		flag string
		end  error
		says string
	}{
		"timeout":   {"--timeout=1ms", context.DeadlineExceeded, `namespace "shop" is not open yet; see: kubectl nsinit why shop`},
		"interrupt": {"--timeout=0", context.Canceled, `interrupted; namespace "shop" still exists`},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{reads: []*corev1.Namespace{shop()}, lifecycles: []*v1alpha1.NamespaceLifecycle{lifecycle("")}}
			cluster := w.cluster()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cluster.Context = ctx
			cluster.Core.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				if errors.Is(test.end, context.Canceled) {
					cancel()
				}
				return false, nil, nil
			})
			cmdtesting.Test{Cluster: cluster, Args: []string{"shop", test.flag}, Out: "namespace/shop created\n", Err: test.says}.Check(t, wait.NewCreateCommand)
		})
	}
}

// TestTenant: a user who may not get the namespace sees in the AccessibleNamespace when it is open, also if nsinit-apiserver learns of it
// later, and completes its name.
func TestTenant(t *testing.T) {
	accessible := func(change func(*corev1.Namespace)) *v1alpha1.AccessibleNamespace {
		n := shop(change)
		return &v1alpha1.AccessibleNamespace{ObjectMeta: n.ObjectMeta, Status: v1alpha1.AccessibleNamespaceStatus{Conditions: utilnamespaces.Conditions(n)}}
	}
	waits := accessible(reports(v1alpha1.ReasonPending, "waiting for initializer \"a.example.com\""))
	reads := []*v1alpha1.AccessibleNamespace{nil, waits, accessible(open)}
	cluster := (&world{}).cluster()
	forbidden := func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "shop", errors.New("no"))
	}
	cluster.Core.PrependReactor("get", "namespaces", forbidden)
	cluster.Core.PrependReactor("list", "namespaces", forbidden)
	cluster.Nsinit.PrependReactor("get", "accessiblenamespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		read := reads[0]
		if reads = reads[min(1, len(reads)-1):]; read == nil {
			return true, nil, apierrors.NewNotFound(v1alpha1.SchemeGroupVersion.WithResource("accessiblenamespaces").GroupResource(), "shop")
		}
		return true, read, nil
	})
	cluster.Nsinit.PrependReactor("list", "accessiblenamespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if selects := action.(clienttesting.ListAction).GetListRestrictions().Fields.String(); selects != "status.phase!=" {
			t.Errorf("the field selector is %q", selects)
		}
		return true, &v1alpha1.AccessibleNamespaceList{Items: []v1alpha1.AccessibleNamespace{*waits}}, nil
	})
	cmdtesting.Test{Cluster: cluster, Args: []string{"shop"},
		Out: "namespace/shop created\nwaiting for initializer \"a.example.com\"\nnamespace/shop is open after 230ms\n"}.Check(t, wait.NewCreateCommand)
	if names := cluster.Complete(t, wait.NewCommand); !slices.Equal(names, []string{"shop"}) {
		t.Errorf("completion offers %q", names)
	}
}

// TestOpenedWithoutPermission: the creator sees a namespace only while it is closed, unless an initializer lets it get the namespace.
// kube-apiserver can know that later than the opening.
func TestOpenedWithoutPermission(t *testing.T) {
	forbidden := func() error { return apierrors.NewForbidden(corev1.Resource("namespaces"), "shop", errors.New("no")) }
	for name, test := range map[string]struct {
		forbidden int
		test      cmdtesting.Test
	}{
		"for a moment": {3, cmdtesting.Test{Args: []string{"shop"}, Out: "namespace/shop is open\n"}},
		"always": {100, cmdtesting.Test{Args: []string{"shop"},
			Err: `namespace "shop" opened or was deleted, and you may not get it: namespaces "shop" is forbidden: no; try to write into it, or ask an administrator for the permission to get it`}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, reads := (&world{}).cluster(), 0
			cluster.Core.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				switch reads++; {
				case reads == 1:
					return true, shop(), nil
				case reads <= 1+test.forbidden:
					return true, nil, forbidden()
				}
				return true, shop(open), nil
			})
			test.test.Cluster = cluster
			test.test.Check(t, wait.NewCommand)
		})
	}
}
