//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// run starts a cluster for the test.
func run(t *testing.T, topology Topology) *Cluster {
	t.Helper()
	built, err := filepath.Abs("../../../_output/bin/nsinit-controller-manager")
	must(t, err)
	own := t.TempDir() // as a build with failpoints
	must(t, os.Symlink(built, filepath.Join(own, "nsinit-controller-manager")))
	c, err := Start(t.Context(), Options{Topology: topology, Volume: true, BinDir: own, Env: map[string][]string{"nsinit-apiserver-0": {"FAULTS=1"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
		for _, program := range c.Programs() {
			if c.Running(program) {
				t.Errorf("%s still runs", program)
			}
			if log, err := os.ReadFile(c.LogFile(program)); t.Failed() && err == nil {
				t.Logf("%s:\n%s", program, log[max(0, len(log)-2000):])
			}
		}
		if err := os.RemoveAll(c.Dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	if err := eventually(t.Context(), check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// recovers checks that every program is ready, and that a new namespace opens through each server.
func recovers(t *testing.T, c *Cluster) {
	t.Helper()
	began := time.Now()
	must(t, c.WaitReady(t.Context()))
	for i := range c.options.Topology.KubeAPIServers {
		namespaces := kubernetes.NewForConfigOrDie(c.Admin(i)).CoreV1().Namespaces()
		var name string
		waitFor(t, "a namespace is created", func(ctx context.Context) error {
			created, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "recovers-"}}, metav1.CreateOptions{})
			if err == nil {
				name = created.Name
			}
			return err
		})
		waitFor(t, "the namespace opens", func(ctx context.Context) error {
			namespace, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if _, closed := namespace.Labels[v1alpha1.LabelInitializing]; closed {
				return fmt.Errorf("%v", namespace.Status.Conditions)
			}
			return nil
		})
	}
	t.Logf("recovered in %.1f s", time.Since(began).Seconds())
}

// links cuts and heals one link of each kind.
func links(t *testing.T, c *Cluster) {
	var kinds []string
	for _, name := range c.Links() {
		kind := strings.NewReplacer("-0", "", "-1", "", "-2", "").Replace(name)
		if slices.Contains(kinds, kind) {
			continue
		}
		kinds = append(kinds, kind)
		t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) {
			link := c.Link(name)
			waitFor(t, "it is used", func(context.Context) error { return used(c, name, true) })
			link.Cut()
			waitFor(t, "it is not used", func(context.Context) error { return used(c, name, false) })
			must(t, link.Heal())
			waitFor(t, "it is used again", func(context.Context) error { return used(c, name, true) })
			recovers(t, c)
		})
	}
}

func used(c *Cluster, link string, want bool) error {
	if n := c.Link(link).Connections(); (n > 0) != want {
		return fmt.Errorf("it has %d connections", n)
	}
	return nil
}

// processes kills, pauses and stops the program that most others depend on.
func processes(t *testing.T, c *Cluster) {
	if own := c.process("nsinit-controller-manager-0").Program; filepath.Dir(own) != c.options.BinDir {
		t.Errorf("it runs %s", own)
	}
	const program = "nsinit-apiserver-0"
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.process(program).Pid()))
	if err != nil || !strings.Contains(string(env), "\x00FAULTS=1\x00") {
		t.Errorf("its environment has no FAULTS: %v", err)
	}
	must(t, c.Pause(t.Context(), program))
	if err := c.healthy(t.Context(), c.url(program)+"/livez"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused program answers: %v", err)
	}
	must(t, c.Resume(t.Context(), program))
	must(t, c.Crash(t.Context(), program))
	waitFor(t, "it is restarted", func(context.Context) error {
		if !c.Running(program) || len(c.Restarts(program)) != 1 {
			return fmt.Errorf("restarts: %q", c.Restarts(program))
		}
		return nil
	})
	for _, end := range []func(context.Context, string) error{c.Kill, c.Stop} {
		must(t, end(t.Context(), program))
		if c.Running(program) || c.Ready(t.Context(), program) == nil {
			t.Error("it runs")
		}
		c.SetEnv(program, []string{"FAULTS=2"})
		must(t, c.StartProgram(t.Context(), program))
	}
	if env, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.process(program).Pid())); err != nil || !strings.Contains(string(env), "\x00FAULTS=2\x00") {
		t.Errorf("its environment was not replaced: %v", err)
	}
	if c.Kill(t.Context(), "none") == nil {
		t.Error("no error for a program that does not exist")
	}
	recovers(t, c)
}

// etcds reads both, and finds the leader of nsinit's.
func etcds(t *testing.T, c *Cluster) {
	for prefix, connect := range map[string]func() (*clientv3.Client, error){"/registry/namespaces/": c.KubeEtcd, "/registry/nsinit.dev/": c.NsinitEtcd} {
		client, err := connect()
		must(t, err)
		stored, err := client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || stored.Count == 0 {
			t.Errorf("nothing below %s: %v", prefix, err)
		}
		must(t, client.Close())
	}
	restored(t, c)
	leader, err := c.NsinitEtcdLeader(t.Context())
	must(t, err)
	if c.options.Topology.NsinitEtcds == 0 {
		return
	}
	must(t, c.Kill(t.Context(), leader))
	waitFor(t, "another member leads", func(ctx context.Context) error {
		_, err := c.NsinitEtcdLeader(ctx)
		return err
	})
	must(t, c.StartProgram(t.Context(), leader))
	recovers(t, c)
}

// restored replaces nsinit's etcd by a snapshot of it. What was stored later is gone.
func restored(t *testing.T, c *Cluster) {
	client, err := c.NsinitEtcd()
	must(t, err)
	defer func() { _ = client.Close() }()
	saved, err := client.SnapshotWithVersion(t.Context())
	must(t, err)
	snapshot, err := io.ReadAll(saved.Snapshot)
	must(t, err)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	must(t, os.WriteFile(file, snapshot, 0o600))
	_, err = client.Put(t.Context(), "/later", "value")
	must(t, err)
	programs := slices.DeleteFunc(c.Programs(), func(name string) bool { return !isReplica(name, nsinitEtcd) && !isReplica(name, nsinitAPIServer) })
	for _, program := range slices.Backward(programs) {
		must(t, c.Kill(t.Context(), program))
	}
	for _, program := range programs {
		if isReplica(program, nsinitEtcd) {
			must(t, c.ReplaceEtcd(program, file))
		}
		must(t, c.StartProgram(t.Context(), program))
	}
	recovers(t, c)
	later, err := client.Get(t.Context(), "/later")
	if err != nil || later.Count > 0 || later.Header.Revision < 1_000_000_000 {
		t.Errorf("%v %v", later, err)
	}
}

func volume(t *testing.T, c *Cluster) {
	must(t, c.FillVolume(t.Context()))
	if err := os.WriteFile(c.volume()+"/more", []byte("x"), 0o600); err == nil {
		t.Error("there is space on a full volume")
	}
	must(t, c.FreeVolume(t.Context()))
	recovers(t, c)
}

func certificate(t *testing.T, c *Cluster) {
	const program = "nsinit-apiserver-0"
	must(t, c.ExpireCertificate(t.Context(), program))
	if c.options.Topology.NsinitAPIServers == 1 {
		waitFor(t, "the aggregator refuses the certificate", func(ctx context.Context) error {
			if out, err := c.Kubectl(ctx, "get", "--raw", "/apis/nsinit.dev/v1alpha1/namespacelifecycles"); err == nil {
				return fmt.Errorf("it answers %.200s", out)
			}
			return nil
		})
	}
	must(t, c.RenewCertificate(t.Context(), program))
	recovers(t, c)
}

// check runs all subtests.
func check(t *testing.T, c *Cluster) {
	t.Run("links", func(t *testing.T) { links(t, c) })
	t.Run("processes", func(t *testing.T) { processes(t, c) })
	t.Run("etcds", func(t *testing.T) { etcds(t, c) })
	t.Run("volume", func(t *testing.T) { volume(t, c) })
	t.Run("certificate", func(t *testing.T) { certificate(t, c) })
}

func TestSmall(t *testing.T) { check(t, run(t, Small())) }

func TestFull(t *testing.T) {
	c := run(t, Full())
	check(t, c)
	t.Run("stale namespaces", func(t *testing.T) { stale(t, c) })
}

// stale makes the second kube-apiserver lag behind in namespaces, but in no other resource.
func stale(t *testing.T, c *Cluster) {
	link := c.Link("kube-apiserver-1/etcd:namespaces")
	fresh, lagging := kubernetes.NewForConfigOrDie(c.Admin(0)).CoreV1(), kubernetes.NewForConfigOrDie(c.Admin(1)).CoreV1()
	link.Drop()
	var name string
	sees := func(ctx context.Context, client typedcorev1.NamespacesGetter) error {
		cached, err := client.Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err == nil && !slices.ContainsFunc(cached.Items, func(n corev1.Namespace) bool { return n.Name == name }) {
			err = errors.New("the namespace is not in the cache")
		}
		return err
	}
	created, err := fresh.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stale-"}}, metav1.CreateOptions{})
	must(t, err)
	name = created.Name
	waitFor(t, "the first server sees it", func(ctx context.Context) error { return sees(ctx, fresh) })
	// The second server sees a later write to another resource.
	later, err := fresh.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "later-"}}, metav1.CreateOptions{})
	must(t, err)
	waitFor(t, "the second server sees another resource", func(ctx context.Context) error {
		_, err := lagging.ConfigMaps("default").Get(ctx, later.Name, metav1.GetOptions{ResourceVersion: later.ResourceVersion})
		return err
	})
	if sees(t.Context(), lagging) == nil {
		t.Error("the second server sees the namespace")
	}
	must(t, link.Heal())
	waitFor(t, "the second server sees it too", func(ctx context.Context) error { return sees(ctx, lagging) })
	recovers(t, c)
}
