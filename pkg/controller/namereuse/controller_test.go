/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package namereuse

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/installation"
)

// TestController: a name is in the list from the deletion of its namespace until the period after the removal,
// whatever fails on the way, and without the ConfigMap nothing is written.
func TestController(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	client := fake.NewClientset(namespace("shop", "1"))
	c, err := New(client, installation.DefaultNamespace, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	namespaces, lists := client.CoreV1().Namespaces(), client.CoreV1().ConfigMaps(installation.DefaultNamespace)
	list := func() map[string]string {
		found, err := lists.Get(ctx, installation.RemovedNamespaces, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return found.Data
	}
	if _, err := lists.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: installation.RemovedNamespaces, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
		Data:       map[string]string{periodKey: "1h"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	failures := 0
	client.PrependReactor("update", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		failures++
		if failures == 1 {
			return true, nil, errors.New("not now")
		}
		// The fake stores what a client with an old object sends.
		update, ok := action.(clienttesting.UpdateAction)
		if !ok {
			return true, nil, fmt.Errorf("the action is a %T", action)
		}
		sent, ok := update.GetObject().(*corev1.ConfigMap)
		stored, err := client.Tracker().Get(action.GetResource(), action.GetNamespace(), installation.RemovedNamespaces)
		if !ok || err != nil {
			return true, nil, fmt.Errorf("the object is a %T: %w", update.GetObject(), err)
		}
		if current, ok := stored.(*corev1.ConfigMap); !ok || failures == 2 || current.ResourceVersion != sent.ResourceVersion {
			return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), installation.RemovedNamespaces, errors.New("changed"))
		}
		sent.ResourceVersion = strconv.Itoa(failures)
		return false, nil, nil
	})

	deleted := namespace("shop", "1")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if _, err := namespaces.Update(ctx, deleted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if listedSince(list()["shop"]).IsZero() {
			return fmt.Errorf("the list is %v", list())
		}
		return nil
	})
	if err := namespaces.Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if until, err := time.Parse(time.RFC3339, list()["shop"]); err != nil || time.Until(until) < 50*time.Minute {
			return fmt.Errorf("the list is %v", list())
		}
		return nil
	})

	// A watch that was interrupted shows another namespace of the name, and no removal.
	if _, err := namespaces.Create(ctx, namespace("depot", "2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.namespaceChanged(namespace("depot", "2"), namespace("depot", "3"))
	eventually(t, func() error {
		if _, err := time.Parse(time.RFC3339, list()["depot"]); err != nil {
			return fmt.Errorf("the list is %v", list())
		}
		return nil
	})
}

func namespace(name, uid string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	}); err != nil {
		t.Fatal(last)
	}
}
