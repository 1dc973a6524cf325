/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/nsinit/nsinit/pkg/installation"
)

const nodeName = "loopback"

// Node runs the pods of nsinit, in any namespace, as processes on loopback. It is their scheduler and their kubelet: it binds pods,
// mounts Secrets, ConfigMaps and volumes, requests tokens of their service accounts, probes, restarts processes that end, and
// ends deleted pods within their grace period. The controllers of Kubernetes do everything else, such as rollouts.
type Node struct {
	// Dir has a folder for each pod, by its UID, and one for each PersistentVolumeClaim, by its name.
	Dir string
	// Probes is the client that sends the probes. It trusts every certificate.
	Probes *http.Client

	c *Cluster
	t *testing.T
	// images are the folders of the programs of each image.
	images map[string]string

	mu   sync.Mutex
	pods map[types.UID]*Pod
}

// StartNode runs a node until the test ends. images are the folders of the programs of each image.
func (c *Cluster) StartNode(t *testing.T, images map[string]string) *Node {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") // the path of etcd's socket is limited
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{c: c, t: t, Dir: dir, images: images, pods: map[types.UID]*Pod{},
		// As in kubelet, a probe does not verify the certificate, and makes a connection.
		Probes: &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}} //nolint:gosec // as a kubelet does
	created, err := c.Core.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// kube-controller-manager changes the node, too.
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := c.Core.CoreV1().Nodes().Get(t.Context(), created.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Loopback", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		_, err = c.Core.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { n.heartbeat(ctx) })
	work.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			n.sync(ctx, &work)
		}
	})
	t.Cleanup(func() {
		cancel()
		work.Wait()
		if t.Failed() {
			n.printLogs()
		}
		_ = os.RemoveAll(dir)
	})
	return n
}

// heartbeat renews the node's lease. Without it, kube-controller-manager would evict the pods.
func (n *Node) heartbeat(ctx context.Context) {
	leases := n.c.Core.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for ctx.Err() == nil {
		patch := []byte(`{"spec":{"renewTime":"` + metav1.NowMicro().UTC().Format(metav1.RFC3339Micro) + `"}}`)
		if _, err := leases.Patch(ctx, nodeName, types.MergePatchType, patch, metav1.PatchOptions{}); apierrors.IsNotFound(err) {
			_, _ = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(nodeName), LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro()),
			}}, metav1.CreateOptions{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
}

// sync binds and starts new pods, and ends deleted ones.
func (n *Node) sync(ctx context.Context, work *sync.WaitGroup) {
	listed, err := n.c.Core.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: installation.PartOf})
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	exist := map[types.UID]bool{}
	for _, object := range listed.Items {
		exist[object.UID] = true
		p := n.pods[object.UID]
		switch {
		case object.Spec.NodeName == "":
			_ = n.c.Core.CoreV1().Pods(object.Namespace).Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName},
			}, metav1.CreateOptions{})
		case p == nil:
			p = &Pod{node: n, Object: &object, Dir: filepath.Join(n.Dir, string(object.UID)), ports: map[int32]string{}, delete: make(chan struct{})}
			n.pods[object.UID] = p
			work.Go(func() { p.run(ctx) })
		}
		if p != nil && object.DeletionTimestamp != nil {
			p.end()
		}
	}
	for uid, p := range n.pods {
		if !exist[uid] {
			p.end()
			delete(n.pods, uid)
		}
	}
}

// Running returns the running pods of an app, the oldest first.
func (n *Node) Running(app string) []*Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*Pod
	for _, p := range n.pods {
		p.mu.Lock()
		if p.Object.Labels["app.kubernetes.io/name"] == app && p.process != nil {
			all = append(all, p)
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b *Pod) int { return a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time) })
	return all
}

// Addresses returns the addresses of the ready pods of an app. A pod that is being deleted has none, like an endpoint.
func (n *Node) Addresses(app string) []string {
	var all []string
	for _, p := range n.Running(app) {
		p.mu.Lock()
		select {
		case <-p.delete:
		default:
			if p.isReady {
				all = append(all, "127.0.0.1:"+p.port("https"))
			}
		}
		p.mu.Unlock()
	}
	return all
}

// WaitReady waits until exactly count pods of an app are ready.
func (n *Node) WaitReady(t *testing.T, app string, count int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d pods of %s are ready", count, app), func(context.Context) error {
		if ready := n.Addresses(app); len(ready) != count {
			return fmt.Errorf("%d are", len(ready))
		}
		return nil
	})
}

// WaitEnded waits until the deleted pods of an app have ended, each within its grace period.
func (n *Node) WaitEnded(t *testing.T, app string) {
	t.Helper()
	pods, err := n.c.Core.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + app})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			continue
		}
		if out, err := n.c.Kubectl("-n", p.Namespace, "wait", "--for=delete", "pod/"+p.Name, fmt.Sprintf("--timeout=%ds", *p.DeletionGracePeriodSeconds)); err != nil {
			t.Fatal(err, out)
		}
	}
}

// printLogs prints the end of the log of each pod.
func (n *Node) printLogs() {
	logs, _ := filepath.Glob(filepath.Join(n.Dir, "*", "log"))
	for _, log := range logs {
		data, _ := os.ReadFile(log)
		n.t.Logf("%s:\n%s", log, data[max(0, len(data)-3000):])
	}
}
