//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// manifest returns the workload of nsinit-apiserver as it is deployed.
func (c *cluster) manifest(t *testing.T) corev1.Container {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.root, "artifacts", "deploy", "nsinit-apiserver.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var workload appsv1.StatefulSet
	if err := yaml.UnmarshalStrict(data, &workload); err != nil {
		t.Fatal(err)
	}
	return workload.Spec.Template.Spec.Containers[0]
}

// balancer does for one service what kubelet's readiness probe and kube-proxy do: it passes
// new connections on to the replicas that are ready, one after the other, and leaves those
// that exist alone.
type balancer struct {
	listener net.Listener
	probe    *corev1.HTTPGetAction
	client   *http.Client

	mu       sync.Mutex
	replicas []string
	ready    map[string]bool
	next     int
}

// balance listens where the service is, until the test ends.
func (c *cluster) balance(t *testing.T, replicas ...string) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.ports(t)["nsinit-apiserver"]))
	if err != nil {
		t.Fatal(err)
	}
	readiness := c.manifest(t).ReadinessProbe
	b := &balancer{listener: listener, replicas: replicas, ready: map[string]bool{}, probe: readiness.HTTPGet,
		// As in kubelet: the certificate is not looked at, and each probe connects.
		client: &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for _, replica := range replicas {
		work.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(time.Duration(readiness.PeriodSeconds) * time.Second / 4) {
				b.look(replica)
			}
		})
	}
	work.Go(func() { b.serve(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		work.Wait()
	})
	return b
}

// look probes a replica.
func (b *balancer) look(replica string) {
	response, err := b.client.Get("https://" + replica + b.probe.Path)
	if err == nil {
		_ = response.Body.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready[replica] = err == nil && response.StatusCode == http.StatusOK
}

func (b *balancer) isReady(replica string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready[replica]
}

// pick returns the next replica that is ready.
func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.replicas {
		b.next = (b.next + 1) % len(b.replicas)
		if replica := b.replicas[b.next]; b.ready[replica] {
			return replica
		}
	}
	return ""
}

func (b *balancer) serve(ctx context.Context) {
	for {
		from, err := b.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = from.Close() }()
			to, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.pick())
			if err != nil {
				return
			}
			defer func() { _ = to.Close() }()
			stop := context.AfterFunc(ctx, func() { _ = from.Close(); _ = to.Close() })
			defer stop()
			go func() { // what ends on one side ends on the other
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}()
			_, _ = io.Copy(from, to)
		}()
	}
}

// failures counts what went wrong, and keeps the first of it.
type failures struct {
	tried, failed atomic.Int64
	first         atomic.Value
}

func (f *failures) count(err error) {
	f.tried.Add(1)
	if err != nil {
		f.failed.Add(1)
		f.first.CompareAndSwap(nil, err.Error())
	}
}

// repeat does something again and again until the context ends.
func repeat(ctx context.Context, work *sync.WaitGroup, what func(ctx context.Context) error) *failures {
	f := &failures{}
	work.Go(func() {
		for ctx.Err() == nil {
			err := what(ctx)
			if ctx.Err() != nil {
				return // the end says nothing
			}
			f.count(err)
		}
	})
	return f
}

// TestRollingRestart: two replicas of nsinit-apiserver on one etcd are restarted one after the
// other, three times each. Discovery never fails, in none of its forms, the API is available
// all the time, and namespaces go away meanwhile.
func TestRollingRestart(t *testing.T) {
	c := connect(t)
	etcd, _ := c.externalEtcd(t)
	replicas := []string{"127.0.0.1:" + freePort(t), "127.0.0.1:" + freePort(t)}
	args := func(replica string) []string {
		_, port, _ := strings.Cut(replica, ":")
		all := []string{"--secure-port=" + port}
		for _, arg := range c.onEtcd(t, etcd) {
			if !strings.HasPrefix(arg, "--secure-port=") {
				all = append(all, arg)
			}
		}
		for _, arg := range c.manifest(t).Args {
			if strings.HasPrefix(arg, "--shutdown-") {
				all = append(all, arg)
			}
		}
		return all
	}
	commands := map[string][]string{replicas[0]: args(replicas[0]), replicas[1]: args(replicas[1])}
	c.replaceServer(t)
	running := map[string]*os.Process{}
	for _, replica := range replicas {
		running[replica] = c.run(t, "nsinit-apiserver", commands[replica]...)
	}
	balancer := c.balance(t, replicas...)
	waitReady := func(replica string) {
		t.Helper()
		eventually(t, replica+" is ready", func(context.Context) error {
			if !balancer.isReady(replica) {
				return errors.New("it is not")
			}
			return nil
		})
	}
	for _, replica := range replicas {
		waitReady(replica)
	}
	c.waitServing(t)
	available := func(ctx context.Context) error { return c.available(ctx, t) }
	eventually(t, "the API is available", available)

	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	counted := map[string]*failures{
		"aggregated discovery, as kube-controller-manager asks": repeat(ctx, &work, func(context.Context) error {
			lists, err := discovery.ServerPreferredResources(kubernetes.NewForConfigOrDie(c.admin).Discovery())
			if err == nil && !strings.Contains(jsonOf(t, lists), v1alpha1.SchemeGroupVersion.String()) {
				err = errors.New("the group nsinit.dev is missing")
			}
			return err
		}),
		"discovery of the group, through the aggregator": repeat(ctx, &work, func(ctx context.Context) error {
			return c.core.Discovery().RESTClient().Get().AbsPath("/apis/nsinit.dev/v1alpha1").MaxRetries(0).Do(ctx).Error()
		}),
		"condition Available": repeat(ctx, &work, available),
		"lists, by a client that retries as all do": repeat(ctx, &work, func(ctx context.Context) error {
			_, err := c.nsinit.NsinitV1alpha1().NamespaceLifecycles().List(ctx, metav1.ListOptions{})
			return err
		}),
	}
	deleted := repeat(ctx, &work, func(ctx context.Context) error {
		namespace, err := c.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: uniqueName("roll")}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		c.waitReady(t, namespace.Name)
		// Also when it is the last one.
		if err := c.core.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), namespace.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		c.waitNoNamespace(t, namespace.Name)
		return nil
	})
	for range 3 {
		for _, replica := range replicas {
			if err := running[replica].Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			eventually(t, replica+" has ended", func(context.Context) error {
				connection, err := net.DialTimeout("tcp", replica, time.Second)
				if err == nil {
					_ = connection.Close()
					return errors.New("it still listens")
				}
				return nil
			})
			running[replica] = c.run(t, "nsinit-apiserver", commands[replica]...)
			waitReady(replica)
		}
	}
	cancel()
	work.Wait()
	for what, f := range counted {
		t.Logf("%s: %d tries, %d failed", what, f.tried.Load(), f.failed.Load())
		if f.failed.Load() > 0 || f.tried.Load() < 20 {
			t.Errorf("%s: %d of %d failed, first: %v", what, f.failed.Load(), f.tried.Load(), f.first.Load())
		}
	}
	t.Logf("%d namespaces were created, initialized and deleted meanwhile", deleted.tried.Load())
	if deleted.failed.Load() > 0 || deleted.tried.Load() == 0 {
		t.Errorf("namespaces: %d of %d failed, first: %v", deleted.failed.Load(), deleted.tried.Load(), deleted.first.Load())
	}
}
