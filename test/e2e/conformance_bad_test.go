//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/sdk/initializer/conformance"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const (
	// badInitializer is the environment variable with the defect of the initializer of TestHelperBadInitializer.
	badInitializer     = "NSINIT_E2E_BAD_INITIALIZER"
	badInitializerName = "bad.example.com"
)

// TestConformanceFindsFaults: the suite fails for each defective initializer, in the test for that defect. It
// fails in a separate process.
func TestConformanceFindsFaults(t *testing.T) {
	framework.Environment(t)
	t.Parallel()
	run := func(t *testing.T, fault, tests string) (string, error) {
		t.Helper()
		c := framework.Connect(t)
		c.Configure(t, v1alpha1.RegisteredInitializer{Name: badInitializerName, Finalizer: true})
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+tests, "-test.v")
		command.Env = append(c.Environ(), badInitializer+"="+fault)
		out, err := command.CombinedOutput()
		finish(t, c)
		return string(out), err
	}
	for fault, want := range map[string]struct{ test, message string }{
		"does nothing":         {"Order", `the initializer has removed itself, but: configmaps "made" not found`},
		"acts before its turn": {"Order", "the initializer acted before its turn"},
		"cannot act twice":     {"Crash", `configmaps \"made\" already exists`},
		"leaves things behind": {"DeletionWhileInitializing", "is removed, but: it is still there"},
		"removes the others":   {"Alongside", `the initializer ended the turn of "`},
	} {
		t.Run(fault, func(t *testing.T) {
			out, err := run(t, fault, "^TestHelperBadInitializer$/^"+want.test+"$")
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(out, "--- FAIL: TestHelperBadInitializer/"+want.test) || !strings.Contains(out, want.message) {
				t.Errorf("%v, want test %s to fail with %q\n%s", err, want.test, want.message, out)
			}
		})
	}
	// Without a defect, the suite passes.
	t.Run("none", func(t *testing.T) {
		out, err := run(t, "none", "^TestHelperBadInitializer$/^(Order|Crash|DeletionWhileInitializing|Alongside)$")
		if err != nil || !strings.Contains(out, "--- PASS: TestHelperBadInitializer/Alongside") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// finish does what a defective initializer has left to do, so that no namespace waits for it.
func finish(t *testing.T, c *framework.Cluster) {
	t.Helper()
	c.ActAs(t, badInitializerName)
	cleanUpAs(t, c, badInitializerName)
	framework.Eventually(t, "no namespace waits for the initializer", func(ctx context.Context) error {
		lifecycles, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, lifecycle := range lifecycles.Items {
			if slices.Contains(helper.Pending(&lifecycle), badInitializerName) || slices.Contains(helper.Participants(&lifecycle), badInitializerName) {
				return fmt.Errorf("%s waits", lifecycle.Name)
			}
		}
		return nil
	})
}

// outside holds what an initializer creates outside of the cluster.
type outside struct {
	mu   sync.Mutex
	made map[types.UID]bool
}

func (o *outside) set(uid types.UID, made bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made[uid] = made
}

func (o *outside) has(uid types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.made[uid]
}

// TestHelperBadInitializer runs the suite on an initializer with a fault, for
// TestConformanceFindsFaults. It does nothing by itself.
func TestHelperBadInitializer(t *testing.T) {
	fault := os.Getenv(badInitializer)
	if fault == "" {
		return
	}
	c := framework.Connect(t)
	things := &outside{made: map[types.UID]bool{}}
	initialize := func(ctx context.Context, namespace *corev1.Namespace) error {
		if fault == "does nothing" {
			return nil
		}
		things.set(namespace.UID, true)
		_, err := c.Core.CoreV1().ConfigMaps(namespace.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) && fault != "cannot act twice" {
			err = nil
		}
		if err != nil {
			return err
		}
		if fault == "removes the others" {
			return removeAll(ctx, c, namespace.Name)
		}
		select { // there is more to do
		case <-time.After(500 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	finalize := func(_ context.Context, namespace *corev1.Namespace) error {
		things.set(namespace.UID, fault == "leaves things behind")
		return nil
	}
	patience := framework.Patience
	if fault == "cannot act twice" {
		patience = 10 * time.Second // the suite waits this long for what the initializer does not do
	}
	conformance.Run(t, conformance.Suite{
		Config: c.Admin, Name: badInitializerName, Patience: patience, Namespaces: 12,
		Start: func(t *testing.T) func() {
			runner, err := initializer.New(initializer.Options{Name: badInitializerName, Core: c.Core, Nsinit: c.Nsinit, Initialize: initialize, Finalize: finalize})
			if err != nil {
				t.Fatal(err)
			}
			ctx, kill := context.WithCancel(context.Background())
			t.Cleanup(kill)
			go func() { _ = runner.Run(ctx) }()
			if fault == "acts before its turn" {
				go actOnAll(ctx, c.Core, initialize)
			}
			return kill
		},
		Check: func(ctx context.Context, namespace *corev1.Namespace) error {
			_, err := c.Core.CoreV1().ConfigMaps(namespace.Name).Get(ctx, "made", metav1.GetOptions{})
			return err
		},
		Left: func(_ context.Context, namespace *corev1.Namespace) error {
			if things.has(namespace.UID) {
				return errors.New("it is still there")
			}
			return nil
		},
	})
}

// removeAll removes all initializers of a namespace, as one does that sends an empty list.
func removeAll(ctx context.Context, c *framework.Cluster, namespace string) error {
	client := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	lifecycle, err := client.Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	lifecycle.Spec.Initializers = nil
	_, err = client.Initialize(ctx, namespace, lifecycle, metav1.UpdateOptions{})
	return err
}

// actOnAll acts on every namespace, also if it is the turn of another initializer.
func actOnAll(ctx context.Context, core kubernetes.Interface, act initializer.Func) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		list, err := core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "nsinit.dev/initializing"})
		if err != nil {
			continue
		}
		var acts sync.WaitGroup // namespaces of earlier tests that are being deleted do not delay it
		for _, namespace := range list.Items {
			acts.Go(func() { _ = act(ctx, &namespace) })
		}
		acts.Wait()
	}
}
