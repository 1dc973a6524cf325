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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// replicas is an installation of overlays/ha on an etcd cluster of three members.
type replicas struct {
	*framework.Cluster
	node   *framework.Node
	etcd   map[string]*os.Process // by the URL of its clients
	tenant kubernetes.Interface
}

// etcdCluster runs three members until the test ends, over TLS, with client certificates.
func etcdCluster(t *testing.T, c *framework.Cluster) map[string]*os.Process {
	t.Helper()
	pki := func(name string) string { return filepath.Join(c.Dir, "pki", name) }
	var peers []string
	clients := map[string]string{}
	for i := range 3 {
		peers = append(peers, fmt.Sprintf("member-%d=https://127.0.0.1:%s", i, framework.FreePort(t)))
	}
	members := map[string]*os.Process{}
	for _, member := range peers {
		name, peer, _ := strings.Cut(member, "=")
		clients[name] = "https://127.0.0.1:" + framework.FreePort(t)
		members[clients[name]] = c.Run(t, "etcd", "--name="+name, "--data-dir="+t.TempDir(),
			"--listen-client-urls="+clients[name], "--advertise-client-urls="+clients[name], "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
			"--initial-cluster="+strings.Join(peers, ","), "--log-level=warn",
			"--client-cert-auth", "--trusted-ca-file="+pki("etcd-ca.crt"), "--cert-file="+pki("etcd.crt"), "--key-file="+pki("etcd.key"),
			"--peer-client-cert-auth", "--peer-trusted-ca-file="+pki("etcd-ca.crt"), "--peer-cert-file="+pki("etcd.crt"), "--peer-key-file="+pki("etcd.key"))
	}
	return members
}

// leader returns the URL of the member of the etcd cluster that leads, and those of the others.
func (r *replicas) leader(t *testing.T) (string, []string) {
	t.Helper()
	var leads string
	var follow []string
	framework.Eventually(t, "a member of etcd leads", func(ctx context.Context) error {
		leads, follow = "", nil
		for url := range r.etcd {
			client := r.EtcdClient(t, url)
			status, err := client.Status(ctx, url)
			_ = client.Close()
			switch {
			case err != nil:
				return err
			case status.Leader == status.Header.MemberId:
				leads = url
			default:
				follow = append(follow, url)
			}
		}
		if leads == "" {
			return errors.New("none does")
		}
		return nil
	})
	return leads, follow
}

// installHA installs overlays/ha with the addresses of this machine.
func installHA(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{Cluster: framework.Another(t, "--only-kube")}
	r.etcd = etcdCluster(t, r.Cluster)
	var servers []string
	for url := range r.etcd {
		servers = append(servers, url)
	}
	slices.Sort(servers)
	r.node = r.StartNode(t, map[string]string{"nsinit:dev": framework.BinDir()})
	r.Balance(t, func() []string { return r.node.Addresses("nsinit-apiserver") })
	if out, err := r.Shell(t, r.Documented(t, framework.InstallGuide, "Several replicas")[0], r.WordsHA(t, "", servers...)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.tenant = r.Cluster.Tenant(t)
	return r
}

const (
	loadAvailable = "condition Available"
	loadDiscovery = "aggregated discovery, as kube-controller-manager asks"
)

// momentAfterKill is how long requests may fail after a replica was killed: until it is out of service, and
// kube-apiserver has probed the API again.
const momentAfterKill = 5 * time.Second

// load is a set of requests that are repeated during a disturbance.
type load struct {
	stop context.CancelFunc
	work sync.WaitGroup
	// requests are counted by purpose.
	requests map[string]*framework.Failures

	mu      sync.Mutex
	created []types.UID // namespaces
	seen    map[types.UID]bool
}

// startLoad starts the load.
func (r *replicas) startLoad(t *testing.T) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel, seen: map[types.UID]bool{}}
	lifecycles := r.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	configurations := r.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	l.requests = map[string]*framework.Failures{
		loadAvailable: framework.Repeat(ctx, &l.work, func(ctx context.Context) error { return r.Available(ctx, t) }),
		"discovery of the group, through the aggregator": framework.Repeat(ctx, &l.work, func(ctx context.Context) error {
			return r.Core.Discovery().RESTClient().Get().AbsPath("/apis/nsinit.dev/v1alpha1").Do(ctx).Error()
		}),
		loadDiscovery: framework.Repeat(ctx, &l.work, func(context.Context) error {
			lists, err := discovery.ServerPreferredResources(kubernetes.NewForConfigOrDie(r.Admin).Discovery())
			if err == nil && !strings.Contains(framework.JSON(t, lists), v1alpha1.SchemeGroupVersion.String()) {
				err = errors.New("the group nsinit.dev is missing")
			}
			return err
		}),
		"lists of NamespaceLifecycles": framework.Repeat(ctx, &l.work, func(ctx context.Context) error {
			_, err := lifecycles.List(ctx, metav1.ListOptions{})
			return err
		}),
		"writes of configurations": framework.Repeat(ctx, &l.work, func(ctx context.Context) error {
			ctx = context.WithoutCancel(ctx) // what was created is deleted
			created, err := configurations.Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{GenerateName: "load-"}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return configurations.Delete(ctx, created.Name, metav1.DeleteOptions{})
		}),
	}
	for range 2 {
		l.work.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
				r.live(t, l)
			}
		})
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return lifecycles.List(ctx, o)
			},
			WatchFuncWithContext: lifecycles.Watch,
		},
		ObjectType: &v1alpha1.NamespaceLifecycle{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.seen[object.(*v1alpha1.NamespaceLifecycle).Spec.NamespaceUID] = true
		}},
	})
	l.work.Go(func() { informer.RunWithContext(ctx) })
	return l
}

// live is the life of a namespace. A tenant writes into it until a write succeeds, which must be after it opened.
func (r *replicas) live(t *testing.T, l *load) {
	namespace, err := r.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("load")}}, metav1.CreateOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	r.Observe(t, r.tenant, namespace).Check(t)
	if err := r.Core.CoreV1().Namespaces().Delete(t.Context(), namespace.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	r.WaitNoNamespace(t, namespace.Name)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.created = append(l.created, namespace.UID)
}

// end waits until each kind of request was made at least this many times and a watch has seen every namespace. Then it ends the load.
func (l *load) end(t *testing.T, least int64) {
	t.Helper()
	framework.Eventually(t, "namespaces are created and deleted, a watch sees each lifecycle, and every request is repeated", func(context.Context) error {
		if err := framework.Tried(l.requests, least); err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.created) == 0 {
			return errors.New("none was created")
		}
		for _, uid := range l.created {
			if !l.seen[uid] {
				return fmt.Errorf("that of namespace %s was not seen", uid)
			}
		}
		return nil
	})
	l.stop()
	l.work.Wait()
	t.Logf("%d namespaces were created, opened, written into and deleted meanwhile", len(l.created))
}

// endUnnoticed ends the load after at least this many requests of each kind. None may have failed.
func (l *load) endUnnoticed(t *testing.T, least int64) {
	t.Helper()
	l.end(t, least)
	for what, f := range l.requests {
		f.None(t, what, least)
	}
}

// endNoticed ends the load, and checks that requests failed only with errors of one kind.
func (l *load) endNoticed(t *testing.T, expected func(what string, f framework.Failure) bool) {
	t.Helper()
	l.end(t, 1)
	for what, f := range l.requests {
		t.Logf("%s: %s", what, f)
		for _, one := range f.Errors {
			if !expected(what, one) {
				t.Errorf("%s: %v", what, one.Err)
			}
		}
	}
}

// standStill sends SIGSTOP to the leader of the controllers until another one leads, and then SIGCONT.
func (r *replicas) standStill(t *testing.T) {
	t.Helper()
	holder := func() string {
		lease, err := r.Core.CoordinationV1().Leases("nsinit-system").Get(t.Context(), "nsinit-controller-manager", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			t.Fatalf("the lease has no holder: %v", err)
		}
		return *lease.Spec.HolderIdentity
	}
	var leader []*framework.Pod
	framework.Eventually(t, "one instance leads", func(context.Context) error {
		leader = slices.DeleteFunc(r.node.Running("nsinit-controller-manager"), func(p *framework.Pod) bool {
			log, err := os.ReadFile(filepath.Join(p.Dir, "log"))
			return err != nil || !strings.Contains(string(log), "uccessfully acquired lease")
		})
		if len(leader) != 1 {
			return fmt.Errorf("%d say that they do", len(leader))
		}
		return nil
	})
	first, restarts := holder(), leader[0].Restarts()
	if err := leader[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	framework.Eventually(t, "another instance leads", func(context.Context) error {
		if now := holder(); now == first {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
	t.Logf("another instance leads %.1f s after the leader stood still", time.Since(began).Seconds())
	if err := leader[0].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	leader[0].WaitRestarted(t, restarts) // it has noticed
}

// openedOnce checks that no namespace was opened twice. The controller that opens one records an event, which is lost if the controller
// ends before it is written.
func (r *replicas) openedOnce(t *testing.T, l *load) {
	t.Helper()
	events, err := r.Core.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Namespace,reason=" + v1alpha1.ReasonInitialized})
	if err != nil {
		t.Fatal(err)
	}
	opened := map[types.UID]int32{}
	for _, event := range events.Items {
		opened[event.InvolvedObject.UID] += max(event.Count, 1)
	}
	if len(opened) == 0 {
		t.Error("no event shows that a namespace was opened")
	}
	for _, uid := range l.created {
		if opened[uid] > 1 {
			t.Errorf("namespace %s was opened %d times", uid, opened[uid])
		}
	}
}

// rollout restarts a Deployment, and waits until all of its pods are new.
func rollout(t *testing.T, c *framework.Cluster, deployment string) {
	t.Helper()
	for _, command := range []string{"restart", "status"} {
		if out, err := c.Kubectl("-n", "nsinit-system", "rollout", command, "deployment/"+deployment); err != nil {
			t.Fatal(err, out)
		}
	}
}

// TestReplicas: the loss of one replica or of one member of etcd disturbs few requests or none.
func TestReplicas(t *testing.T) {
	r := installHA(t)
	t.Run("rolling restart", func(t *testing.T) {
		l := r.startLoad(t)
		for range 2 {
			for _, app := range []string{"nsinit-apiserver", "nsinit-controller-manager"} {
				rollout(t, r.Cluster, app)
			}
		}
		l.endUnnoticed(t, 20)
	})
	// Meanwhile the replaced replicas continue.
	t.Run("the leader of the controllers stands still", func(t *testing.T) {
		l := r.startLoad(t)
		r.standStill(t)
		l.endUnnoticed(t, 20)
		r.openedOnce(t, l)
	})
	t.Run("a member of etcd stands still", func(t *testing.T) {
		l := r.startLoad(t)
		_, followers := r.leader(t)
		if err := r.etcd[followers[0]].Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := r.etcd[followers[0]].Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		l.endUnnoticed(t, 3) // what asks the member waits for it
	})
	t.Run("the replicas that were replaced end", func(t *testing.T) {
		l := r.startLoad(t)
		r.node.WaitEnded(t, "nsinit-apiserver")
		l.endUnnoticed(t, 20)
	})
	// kube-apiserver answers 503 without Retry-After to requests that it proxies to the replica while it is killed.
	// Clients do not retry these, and nsinit cannot make them. If kube-apiserver probes the replica at that time,
	// it treats the API as unavailable until the next probe. All this ends soon; watches and namespaces continue.
	t.Run("kill of either replica", func(t *testing.T) {
		l := r.startLoad(t)
		var kills []time.Time
		for i := range 4 {
			replica := r.node.Running("nsinit-apiserver")[i%2]
			restarts := replica.Restarts()
			if err := replica.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			kills = append(kills, time.Now())
			replica.WaitRestarted(t, restarts)
			r.node.WaitReady(t, "nsinit-apiserver", 2)
		}
		l.endNoticed(t, func(what string, f framework.Failure) bool {
			inTime := slices.ContainsFunc(kills, func(kill time.Time) bool { return !f.At.Before(kill) && f.At.Before(kill.Add(momentAfterKill)) })
			cut := strings.Contains(f.Err.Error(), "stream error") // in the middle of a response
			return inTime && (apierrors.IsServiceUnavailable(f.Err) || cut || what == loadAvailable || what == loadDiscovery)
		})
	})
	// Its namespaces stay, and would make the lists of the others long.
	t.Run("a configuration is in force when it is acknowledged", r.inForce)
	// As in Kubernetes: it is unknown whether a write that was sent to the leader is stored, so it fails, with an
	// error of a member that waited for the leader, or of the connection to it.
	t.Run("the leader of etcd is killed", func(t *testing.T) {
		l := r.startLoad(t)
		leader, _ := r.leader(t)
		if err := r.etcd[leader].Kill(); err != nil {
			t.Fatal(err)
		}
		delete(r.etcd, leader)
		r.leader(t)
		l.endNoticed(t, func(_ string, f framework.Failure) bool {
			return strings.Contains(f.Err.Error(), "etcdserver: ") || strings.Contains(f.Err.Error(), "rpc error: code = Unavailable")
		})
	})
}
