//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const scanWorkload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: scanned, namespace: NAMESPACE}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: scanned}}
  template:
    metadata: {labels: {app: scanned}}
    spec: {containers: [{name: main, image: none}]}
`

// TestScanBeforeRun: artifacts/examples/scan-before-run.yaml registers an initializer. It scans each pod of a large Deployment exactly
// once while the pod waits, and sends one request for each pod.
func TestScanBeforeRun(t *testing.T) {
	const replicas = 200
	c := framework.Connect(t)
	if _, err := installObjects(t, c); err != nil {
		t.Fatal(err)
	}
	example := "--filename=" + filepath.Join(c.Root, "artifacts", "examples", "scan-before-run.yaml")
	if _, err := c.Kubectl("apply", example); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Kubectl("delete", example) })
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	c.LabelNamespace(t, namespace, "scan=required")
	scans := startScan(t, c)
	framework.Eventually(t, "new pods wait", func(ctx context.Context) error {
		pod, err := c.Core.CoreV1().Pods(namespace).Create(ctx, podOf("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !slices.Equal(helper.PendingOfObject(pod), []string{scanInitializer}) {
			err = fmt.Errorf("the gates are %v", pod.Spec.SchedulingGates)
		}
		return err
	})

	_, from := c.AuditSince(t, 0)
	began := time.Now()
	c.ApplyInput(t, strings.NewReplacer("NAMESPACE", namespace, "REPLICAS", fmt.Sprint(replicas)).Replace(scanWorkload))
	var pods []corev1.Pod
	framework.Eventually(t, "no pod waits", func(ctx context.Context) error {
		list, err := c.Core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods = list.Items
		waiting := slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return len(pod.Spec.SchedulingGates) == 0 })
		if len(pods) != replicas || len(waiting) > 0 {
			return fmt.Errorf("%d of %d pods wait", len(waiting), len(pods))
		}
		return nil
	})
	t.Logf("%d pods were scanned within %s", replicas, time.Since(began).Round(time.Second/10))
	want := map[types.UID]int{}
	for _, pod := range pods {
		want[pod.UID] = 1
	}
	if got := scans(); !maps.Equal(got, want) {
		t.Errorf("%d pods, and these scans: %v", len(pods), got)
	}
	framework.Eventually(t, "one request was sent for each pod", func(context.Context) error {
		events, _ := c.AuditSince(t, from)
		sent := map[string]int{}
		for _, e := range events {
			if e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == namespace && e.Verb != "create" {
				sent[cmp.Or(e.ImpersonatedUser.Username, e.User.Username)+" "+e.Verb]++
			}
		}
		if want := map[string]int{scanUser + " patch": replicas}; !maps.Equal(sent, want) {
			return fmt.Errorf("the requests are %v", sent)
		}
		return nil
	})
}

const (
	// scanInitializer and scanUser are the initializer and the user of the example.
	scanInitializer = "scan.example.com"
	scanUser        = "system:serviceaccount:scan:scan"
)

// startScan runs the initializer until the test ends. scans returns the number of scans of each pod.
func startScan(t *testing.T, c *framework.Cluster) (scans func() map[types.UID]int) {
	t.Helper()
	var mu sync.Mutex
	counts := map[types.UID]int{}
	config := c.As(scanUser)
	runner, err := initializer.New(initializer.Options{
		Name: scanInitializer, Core: kubernetes.NewForConfigOrDie(config), Nsinit: versioned.NewForConfigOrDie(config),
		InitializeObject: func(ctx context.Context, object initializer.Object) error {
			mu.Lock()
			counts[object.GetUID()]++
			mu.Unlock()
			// No program can add a gate again, so a pod that waits at the end of its scan has waited all the time.
			stored, err := c.Core.CoreV1().Pods(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
			if err == nil && !slices.Equal(helper.PendingOfObject(stored), []string{scanInitializer}) {
				err = errors.New("the pod does not wait")
			}
			if err != nil {
				t.Errorf("the scan of %s: %v", object.GetName(), err)
			}
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func() map[types.UID]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}
}
