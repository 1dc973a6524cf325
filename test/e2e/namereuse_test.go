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
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	installed "github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
	"github.com/nsinit/nsinit/test/faults/proxy"
)

const (
	// staleness is how long the second kube-apiserver receives no news of namespaces, and a late write is delayed, with the
	// component. etcd's client ends a connection after 40s.
	staleness = 25 * time.Second
	// reusePeriod is the period of the component in the test, longer than either. A namespace is held for that
	// long, and its name is refused for that long.
	reusePeriod = 35 * time.Second
	// lateLabel marks writes that the dead webhook delays.
	lateLabel = "e2e.example.com/late"
)

// TestStrictNameReuse makes writes outlive the namespaces that they were for: writes that a dead webhook delays,
// and writes through a second kube-apiserver that still sees the former namespace. Without the component
// strict-name-reuse they reach the new namespace of the name while it is closed; with it, none does.
func TestStrictNameReuse(t *testing.T) {
	const few = 3
	rounds := few
	if given := os.Getenv("NSINIT_E2E_ROUNDS"); given != "" {
		var err error
		if rounds, err = strconv.Atoi(given); err != nil {
			t.Fatalf("NSINIT_E2E_ROUNDS: %v", err)
		}
	}
	c := framework.Connect(t)
	a := &reuseAttack{Cluster: c, tenant: c.Tenant(t)}
	c.Configure(t, framework.Initializers("held.example.com")...)
	second, link := secondKubeAPIServer(t, c)
	a.link = link
	a.second = kubernetes.NewForConfigOrDie(through(c, second, "e2e-tenant"))
	gateActsOn(t, c, a.second)
	a.webhook = deadWebhook(t, c)

	t.Run("without the component", func(t *testing.T) {
		var got reuseResult
		// On a busy machine, kube-controller-manager takes longer than the timeout of the webhook.
		c.Dev(t, "kill", "kube-controller-manager")
		a.finalizes = true
		defer func() {
			a.finalizes = false
			c.Dev(t, "start", "kube-controller-manager")
		}()
		for began := time.Now(); !got.every() && time.Since(began) < framework.Patience; {
			a.run(t, few, &got, func(attacked *atomic.Int64) error {
				return persist(t.Context(), func() error {
					if n := attacked.Load(); n < few {
						return fmt.Errorf("%d of %d rounds have attacked", n, few)
					}
					return nil
				})
			})
			t.Logf("in rounds of %d: %s", few, got)
		}
		if !got.every() {
			t.Error("an attack does not reach the new namespace, so this test shows nothing")
		}
	})
	t.Run("with the component", func(t *testing.T) {
		installStrictNameReuse(t, c, reusePeriod)
		const atOnce = 40
		var got reuseResult
		for left := rounds; left > 0; left -= atOnce {
			a.run(t, min(left, atOnce), &got, func(*atomic.Int64) error {
				time.Sleep(staleness)
				return nil
			})
		}
		t.Logf("of %d rounds: %s", rounds, got)
		if got.reached() {
			t.Error("writes for the former namespace reached the new one")
		}
	})
}

// TestStrictNameReuseFull: a user cannot fill the list of names. The list has no room for the names of deleted namespaces that the
// user holds with a finalizer. They stay until it has, so other users can create namespaces, and no name is free early.
func TestStrictNameReuseFull(t *testing.T) {
	c := framework.Connect(t)
	tenant := c.Tenant(t)
	const period = 20 * time.Second
	installStrictNameReuse(t, c, period)
	lists, namespaces := c.Core.CoreV1().ConfigMaps(installed.DefaultNamespace), c.Core.CoreV1().Namespaces()
	list := func(ctx context.Context) map[string]string {
		found, err := lists.Get(ctx, installed.RemovedNamespaces, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return found.Data
	}

	// The names of the user need 800 bytes, and the list has 512 left.
	var held []string
	for i := range 8 {
		name := fmt.Sprintf("%s-%d", framework.UniqueName("held"), i)
		name += strings.Repeat("x", 63-len(name))
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{framework.Holder}}}
		if _, err := namespaces.Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Release(t, name) })
		held = append(held, name)
	}
	framework.Eventually(t, "the list is almost full", func(ctx context.Context) error {
		full, err := lists.Get(ctx, installed.RemovedNamespaces, metav1.GetOptions{})
		if err != nil {
			return err
		}
		until := time.Now().Add(period).UTC().Format(time.RFC3339)
		for size := 0; size < 512<<10-512; size += 63 + len(until) {
			full.Data[fmt.Sprintf("%063d", size)] = until
		}
		_, err = lists.Update(ctx, full, metav1.UpdateOptions{})
		return err
	})
	for _, name := range held {
		if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	framework.Eventually(t, "the namespaces are held", func(ctx context.Context) error {
		for _, name := range held {
			namespace, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !slices.Contains(namespace.Spec.Finalizers, v1alpha1.NameReuseFinalizer) {
				return fmt.Errorf("%s has %v", name, namespace.Spec.Finalizers)
			}
		}
		return nil
	})
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "reuse-"}}
	if _, err := tenant.CoreV1().Namespaces().Create(t.Context(), other, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("another user cannot create a namespace: %v", err)
	}
	if until, found := list(t.Context())["_all"]; found {
		t.Errorf("every name is refused until %s", until)
	}

	// From the removal until the period is over, no name can be used again.
	existed, reused := map[string]time.Time{}, map[string]time.Time{}
	for _, name := range held {
		existed[name] = time.Now()
		c.Release(t, name)
	}
	framework.Eventually(t, "the names can be used again", func(ctx context.Context) error {
		for _, name := range held {
			if _, found := reused[name]; found {
				continue
			}
			again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			_, err := namespaces.Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				reused[name] = time.Now()
			} else if !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err) {
				return err
			}
			asked := time.Now()
			if _, err := namespaces.Get(ctx, name, metav1.GetOptions{}); err == nil {
				existed[name] = asked
			}
		}
		if len(reused) < len(held) {
			return fmt.Errorf("%d of %d can", len(reused), len(held))
		}
		return nil
	})
	for _, name := range held {
		if after := reused[name].Sub(existed[name]); after < period {
			t.Errorf("the name %s could be used again %s after the namespace still existed, want %s", name, after, period)
		}
	}
}

// reuseAttack is what the attacks need.
type reuseAttack struct {
	*framework.Cluster
	// tenant and second write through the first and the second kube-apiserver.
	tenant, second kubernetes.Interface
	// link is between the second kube-apiserver and etcd.
	link    *proxy.Link
	webhook *webhook
	// finalizes is set while the test finalizes namespaces, and kube-controller-manager does not run.
	finalizes bool
}

// reuseResult counts rounds in which a write reached the new namespace while it was closed.
type reuseResult struct{ late, creates, patches, deletes int }

func (r reuseResult) reached() bool { return r != reuseResult{} }

func (r reuseResult) every() bool {
	return r.late > 0 && r.creates > 0 && r.patches > 0 && r.deletes > 0
}

func (r reuseResult) String() string {
	return fmt.Sprintf("late creates %d; through the stale kube-apiserver: creates %d, patches %d, deletes %d", r.late, r.creates, r.patches, r.deletes)
}

// run attacks some namespaces at the same time. The writes are delayed, and the second kube-apiserver receives no news, until
// wait returns, which gets the number of rounds that have attacked.
func (a *reuseAttack) run(t *testing.T, rounds int, total *reuseResult, wait func(attacked *atomic.Int64) error) {
	t.Helper()
	prefix := framework.UniqueName("reuse")
	// The webhooks time out soon, so the late writes start only when every former namespace is open.
	var opening errgroup.Group
	for i := range rounds {
		opening.Go(func() error { return a.open(t.Context(), fmt.Sprintf("%s-%d", prefix, i)) })
	}
	if err := opening.Wait(); err != nil {
		t.Fatalf("the former namespaces: %v", err)
	}
	late := a.webhook.calls.Load() + int64(rounds)
	var attacked atomic.Int64
	var group sync.WaitGroup
	var mu sync.Mutex
	arrived, healed := make(chan struct{}), make(chan struct{})
	for i := range rounds {
		group.Go(func() {
			got, err := a.round(t.Context(), fmt.Sprintf("%s-%d", prefix, i), arrived, healed, &attacked)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				attacked.Add(1) // the others do not wait for it
				t.Errorf("round %d: %v", i, err)
				return
			}
			total.late += got.late
			total.creates += got.creates
			total.patches += got.patches
			total.deletes += got.deletes
		})
	}
	err := persist(t.Context(), func() error {
		if missing := late - a.webhook.calls.Load(); missing > 0 {
			return fmt.Errorf("%d of %d late writes are not at the webhook yet", missing, rounds)
		}
		return nil
	})
	a.link.Drop()
	close(arrived)
	err = errors.Join(err, wait(&attacked))
	a.webhook.release()
	if err := errors.Join(err, a.link.Heal()); err != nil {
		t.Error(err)
	}
	close(healed)
	group.Wait()
}

// round starts a write into an open namespace that is delayed, deletes the namespace and creates it again, and
// writes to it through the second kube-apiserver, which has no news meanwhile, until it has. The new namespace stays
// closed.
func (a *reuseAttack) round(ctx context.Context, name string, arrived, healed <-chan struct{}, attacked *atomic.Int64) (got reuseResult, err error) {
	defer func() { _ = a.Core.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) }()
	late := make(chan error, 1)
	go func() {
		_, err := a.tenant.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late", Labels: map[string]string{lateLabel: "true"}}}, metav1.CreateOptions{})
		late <- err
	}()
	<-arrived
	if err := a.recreate(ctx, name); err != nil {
		return got, err
	}
	content := a.Core.CoreV1().ConfigMaps(name)
	for _, object := range []string{"patched", "deleted"} {
		if err := persist(ctx, func() error {
			_, err := content.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object}}, metav1.CreateOptions{})
			return err
		}); err != nil {
			return got, fmt.Errorf("an initializer cannot write: %w", err)
		}
	}
	stale := a.second.CoreV1().ConfigMaps(name)
	for tries, left := 0, 10; left > 0; time.Sleep(200 * time.Millisecond) {
		select {
		case <-healed:
			left--
		default:
		}
		_, _ = stale.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stale"}}, metav1.CreateOptions{})
		_, _ = stale.Patch(ctx, "patched", types.MergePatchType, []byte(`{"data":{"by":"tenant"}}`), metav1.PatchOptions{})
		_ = stale.Delete(ctx, "deleted", metav1.DeleteOptions{})
		if tries++; tries == 1 {
			attacked.Add(1)
		}
	}
	if err := <-late; err != nil {
		return got, fmt.Errorf("the late write: %w", err)
	}
	return a.reached(ctx, name)
}

// open creates a namespace and finishes its initializer. Both kube-apiservers then see that it is open.
func (a *reuseAttack) open(ctx context.Context, name string) error {
	if _, err := a.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	lifecycles := a.Nsinit.NsinitV1alpha1().NamespaceLifecycles()
	if err := persist(ctx, func() error {
		lifecycle, err := lifecycles.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lifecycle.Spec.Initializers.Pending = nil
		_, err = lifecycles.Initialize(ctx, name, lifecycle, metav1.UpdateOptions{})
		return err
	}); err != nil {
		return err
	}
	for _, client := range []kubernetes.Interface{a.tenant, a.second} {
		if err := persist(ctx, func() error { return framework.WriteConfigMap(ctx, client, name) }); err != nil {
			return err
		}
	}
	return nil
}

// recreate deletes a namespace and creates it again as soon as possible.
func (a *reuseAttack) recreate(ctx context.Context, name string) error {
	namespaces := a.Core.CoreV1().Namespaces()
	former, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return persist(ctx, func() error {
		if a.finalizes {
			if err := a.finalize(ctx, former); err != nil {
				return err
			}
		}
		created, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil && created.UID == former.UID {
			err = wait.ErrorInterrupted(errors.New("the former namespace was returned"))
		}
		return err
	})
}

// finalize removes the finalizer of Kubernetes from a deleted namespace, as the user of kube-controller-manager.
func (a *reuseAttack) finalize(ctx context.Context, former *corev1.Namespace) error {
	namespaces := kubernetes.NewForConfigOrDie(a.As("system:serviceaccount:kube-system:namespace-controller")).CoreV1().Namespaces()
	deleted, err := namespaces.Get(ctx, former.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && deleted.UID != former.UID {
		return nil
	}
	if err != nil {
		return err
	}
	deleted.Spec.Finalizers = slices.DeleteFunc(deleted.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err = namespaces.Finalize(ctx, deleted, metav1.UpdateOptions{})
	return err
}

// reached reports what the tenant wrote into a closed namespace.
func (a *reuseAttack) reached(ctx context.Context, name string) (got reuseResult, err error) {
	namespace, err := a.Core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return got, err
	}
	if _, closed := namespace.Labels[v1alpha1.LabelInitializing]; !closed {
		return got, errors.New("the new namespace is open")
	}
	list, err := a.Core.CoreV1().ConfigMaps(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return got, err
	}
	names := map[string]string{}
	for _, object := range list.Items {
		names[object.Name] = object.Data["by"]
	}
	count := func(reached bool) int {
		if reached {
			return 1
		}
		return 0
	}
	_, late := names["late"]
	_, created := names["stale"]
	_, kept := names["deleted"]
	return reuseResult{late: count(late), creates: count(created), patches: count(names["patched"] == "tenant"), deletes: count(!kept)}, nil
}

// persist retries until a function succeeds. It is for goroutines, which cannot end a test.
func persist(ctx context.Context, try func() error) error {
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, 4*framework.Patience, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	}); err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// secondKubeAPIServer runs a second kube-apiserver on the same etcd until the test ends. It reads and writes
// namespaces through a link.
func secondKubeAPIServer(t *testing.T, c *framework.Cluster) (*rest.Config, *proxy.Link) {
	t.Helper()
	link := proxy.New("kube-apiserver-2/etcd:namespaces")
	t.Cleanup(link.Close)
	address, err := link.Forward("127.0.0.1:0", proxy.Fixed(fmt.Sprintf("127.0.0.1:%d", c.Ports(t)["etcd"])))
	if err != nil {
		t.Fatal(err)
	}
	return runKubeAPIServer(t, c, "--etcd-servers-overrides=/namespaces#https://"+address), link
}

// runKubeAPIServer runs another kube-apiserver on the same etcd until the test ends, with more arguments. It returns the
// configuration of an administrator's client when it is ready.
func runKubeAPIServer(t *testing.T, c *framework.Cluster, more ...string) *rest.Config {
	t.Helper()
	port := framework.FreePort(t)
	c.Run(t, "kube-apiserver", slices.Concat(c.Arguments(t, "kube-apiserver"),
		[]string{"--secure-port=" + port, "--audit-log-path=" + filepath.Join(t.TempDir(), "audit.log")}, more)...)
	config := rest.CopyConfig(c.Admin)
	config.Host = "https://127.0.0.1:" + port
	if err := persist(t.Context(), func() error { // it starts slowly on a busy machine
		return kubernetes.NewForConfigOrDie(config).Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	}); err != nil {
		t.Fatalf("another kube-apiserver is not ready: %v", err)
	}
	return config
}

// through returns the configuration of a user's client that uses another kube-apiserver.
func through(c *framework.Cluster, server *rest.Config, user string) *rest.Config {
	config := c.As(user)
	config.Host = server.Host
	return config
}

// gateActsOn waits until a kube-apiserver evaluates the gate.
func gateActsOn(t *testing.T, c *framework.Cluster, tenant kubernetes.Interface) {
	t.Helper()
	namespace := c.CreateNamespace(t, c.Admin)
	framework.Eventually(t, "the gate acts", func(ctx context.Context) error {
		return framework.Refused(framework.WriteConfigMap(ctx, tenant, namespace.Name))
	})
}

// webhook is a webhook that fails open and does not answer until its connections are closed.
type webhook struct {
	calls atomic.Int64
	mu    sync.Mutex
	open  []net.Conn
}

func (w *webhook) serve(listener net.Listener) {
	defer w.release()
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		w.open = append(w.open, connection)
		w.mu.Unlock()
		w.calls.Add(1)
	}
}

// release lets the requests continue.
func (w *webhook) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, connection := range w.open {
		_ = connection.Close()
	}
	w.open = nil
}

// deadWebhook registers a webhook for ConfigMaps with the label.
func deadWebhook(t *testing.T, c *framework.Cluster) *webhook {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	dead := &webhook{}
	go dead.serve(listener)
	address := (&url.URL{Scheme: "https", Host: listener.Addr().String()}).String()
	none, ignore, seconds := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore, int32(30) // the longest timeout
	webhooks := c.Core.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	registered, err := webhooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("dead")},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "dead.e2e.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &address},
			FailurePolicy: &ignore, SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{lateLabel: "true"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = webhooks.Delete(context.Background(), registered.Name, metav1.DeleteOptions{}) })
	namespace := c.CreateNamespace(t, c.Admin)
	framework.Eventually(t, "the webhook is called", func(ctx context.Context) error {
		asked, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _ = c.Core.CoreV1().ConfigMaps(namespace.Name).Create(asked, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Labels: map[string]string{lateLabel: "true"}}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if dead.calls.Load() == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	return dead
}

// installStrictNameReuse installs the component with a short period until the test ends, and waits until
// namespaces can be created again.
func installStrictNameReuse(t *testing.T, c *framework.Cluster, period time.Duration) {
	t.Helper()
	dir := filepath.Join(c.Root, "artifacts", "deploy", "components", "strict-name-reuse")
	list, err := os.ReadFile(filepath.Join(dir, "list.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	shorter := strings.Replace(string(list), "_period: 75s", "_period: "+period.String(), 1)
	if _, err := c.KubectlInput(shorter, "apply", "--server-side"); err != nil {
		t.Fatal(err)
	}
	try := func(ctx context.Context) error {
		_, err := c.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "reuse-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	t.Cleanup(func() { // the policy first, which needs the list
		for _, manifest := range []string{"policy.yaml", "list.yaml", "rights.yaml"} {
			if _, err := c.Kubectl("delete", "--ignore-not-found", "-f", filepath.Join(dir, manifest)); err != nil {
				t.Error(err)
			}
		}
		framework.Eventually(t, "kube-apiserver has seen that the policy is deleted", try)
	})
	if _, err := c.Kubectl("apply", "--server-side", "-f", filepath.Join(dir, "rights.yaml"), "-f", filepath.Join(dir, "policy.yaml")); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the policy is in force, and refuses every name while it is new", func(ctx context.Context) error {
		if err := try(ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), installed.RemovedNamespaces) {
			return fmt.Errorf("it says: %w", errors.Join(err, errors.New("(no error)")))
		}
		return nil
	})
	framework.Eventually(t, "namespaces can be created again", try)
}
