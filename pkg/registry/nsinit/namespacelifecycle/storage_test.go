/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namespacelifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apiserver/scheme"
	"github.com/nsinit/nsinit/pkg/authorization"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// TestUnconfirmed: no request creates a NamespaceLifecycle in a storage that is not confirmed, also not server-side apply,
// which is an update that may create.
func TestUnconfirmed(t *testing.T) {
	objects := newMemory()
	storage, err := servedBy(New(scheme.New(), objects.RESTOptions(), authorization.New(authorizerfactory.NewAlwaysAllowAuthorizer()), Options{
		Clock:      clock.RealClock{},
		Identified: func(context.Context) error { return nil },
		Confirmed:  func(context.Context) error { return errors.New("this is another storage") },
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, record := request("admin", ""), &nsinit.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: recordName}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u"}}
	for way, create := range map[string]func() error{
		"create": func() error {
			_, err := storage.Lifecycle.Create(ctx, record.DeepCopy(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			return err
		},
		"server-side apply": func() error {
			_, _, err := storage.Lifecycle.Update(ctx, recordName, rest.DefaultUpdatedObjectInfo(record.DeepCopy()), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
			return err
		},
	} {
		if err := create(); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "this is another storage") || len(objects.objects) > 0 {
			t.Errorf("%s: %v, %d objects", way, err, len(objects.objects))
		}
	}
}

// TestBounded: a request that may create a NamespaceLifecycle ends timing.CreateTimeout after it was received.
func TestBounded(t *testing.T) {
	var deadline time.Time
	var bounded bool
	storage, err := servedBy(New(scheme.New(), newMemory().RESTOptions(), authorization.New(authorizerfactory.NewAlwaysAllowAuthorizer()), Options{
		Clock:      clock.RealClock{},
		Identified: func(context.Context) error { return nil },
		Confirmed: func(ctx context.Context) error {
			deadline, bounded = ctx.Deadline()
			return nil
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	received := time.Now().Add(-time.Second)
	ctx := genericapirequest.WithReceivedTimestamp(request("admin", ""), received)
	record := &nsinit.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: recordName}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u"}}
	for way, create := range map[string]func(*nsinit.NamespaceLifecycle) error{
		"create": func(record *nsinit.NamespaceLifecycle) error {
			_, err := storage.Lifecycle.Create(ctx, record, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			return err
		},
		"server-side apply": func(record *nsinit.NamespaceLifecycle) error {
			_, _, err := storage.Lifecycle.Update(ctx, record.Name, rest.DefaultUpdatedObjectInfo(record), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
			return err
		},
	} {
		created := record.DeepCopy()
		created.Name = strings.ReplaceAll(way, " ", "-")
		deadline, bounded = time.Time{}, false
		if err := create(created); err != nil || !bounded || !deadline.Equal(received.Add(timing.CreateTimeout)) {
			t.Errorf("%s: %v, ends at %s, was received at %s", way, err, deadline, received)
		}
	}
}

// TestInTime: a storage that does not answer in time is no internal error. The answer of the server itself stays.
func TestInTime(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	invalid := apierrors.NewBadRequest("no")
	if err := inTime(ctx, ctx.Err()); !apierrors.IsTimeout(err) {
		t.Errorf("got %v", err)
	}
	if err := inTime(ctx, invalid); !apierrors.IsBadRequest(err) {
		t.Errorf("got %v", err)
	}
	if err := inTime(t.Context(), context.DeadlineExceeded); apierrors.IsTimeout(err) || err == nil {
		t.Errorf("got %v", err)
	}
}

// TestAllocations: the life of a NamespaceLifecycle until its namespace opens, from its creation to the end of its only turn,
// makes a bounded number of allocations, beside those of requests and of etcd.
func TestAllocations(t *testing.T) {
	const most = 500
	trusted := func(context.Context) error { return nil }
	storage, err := servedBy(New(scheme.New(), newMemory().RESTOptions(), authorization.New(authorizerfactory.NewAlwaysAllowAuthorizer()), Options{
		Clock: clock.RealClock{}, Identified: trusted, Confirmed: trusted,
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, number := request("admin", ""), 0
	got := testing.AllocsPerRun(500, func() {
		number++
		record := &nsinit.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ns-%d", number)}, Spec: v1alpha1.NamespaceLifecycleSpec{
			NamespaceUID: "u",
			Plan: []v1alpha1.PlannedInitializer{{
				RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "a.example.com"}, Configuration: &v1alpha1.ConfigurationReference{Name: "a"},
			}},
			Initializers: &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: "a.example.com"}}},
		}}
		created, err := storage.Lifecycle.Create(ctx, record, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		done := created.DeepCopyObject().(*nsinit.NamespaceLifecycle)
		done.Spec.Initializers = nil
		if _, _, err := storage.Initialize.Update(ctx, done.Name, rest.DefaultUpdatedObjectInfo(done), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if got > most || got < 50 {
		t.Errorf("%.0f allocations, at most %d (less than 50 cannot be)", got, most)
	}
}
