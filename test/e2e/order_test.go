//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// ordered returns an initializer that waits for the others that are named.
func ordered(name string, after ...string) v1alpha1.RegisteredInitializer {
	return v1alpha1.RegisteredInitializer{Name: name, Ordering: &v1alpha1.InitializerOrdering{After: after}}
}

// checkOrder checks that each of a number of planned initializers is done, and began after those for which it waits
// had ended. The server recorded the times.
func checkOrder(t *testing.T, lifecycle *v1alpha1.NamespaceLifecycle, count int) {
	t.Helper()
	if len(lifecycle.Status.Initializers) != count {
		t.Errorf("%d initializers, want %d", len(lifecycle.Status.Initializers), count)
	}
	for _, entry := range lifecycle.Status.Initializers {
		if entry.State != v1alpha1.InitializerDone || entry.StartTime == nil || entry.EndTime == nil {
			t.Errorf("%s: %+v", lifecycle.Name, entry)
			continue
		}
		for _, name := range helper.Predecessors(lifecycle, entry.Name) {
			if before := helper.Entry(lifecycle, name); before.EndTime == nil || entry.StartTime.Time.Before(before.EndTime.Time) {
				t.Errorf("%s: %q began at %s, and %q, for which it waits, ended at %s", lifecycle.Name, entry.Name, entry.StartTime, name, before.EndTime)
			}
		}
	}
}

// diary records, in the process of the initializers, when each began and ended.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) first(line string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Index(d.lines, line)
}

// graph is dns and mesh at the same time, quota after dns, app after quota and mesh, and last after all, in a domain.
func graph(domain string) []v1alpha1.RegisteredInitializer {
	return []v1alpha1.RegisteredInitializer{
		ordered("app"+domain, "quota"+domain, "mesh"+domain, "no-such"+domain),
		ordered("dns" + domain), ordered("mesh" + domain), ordered("quota"+domain, "dns"+domain), {Name: "last" + domain},
	}
}

// TestOrder: initializers act in the order of a graph, in many namespaces, and each is called after those for which it
// waits have returned.
func TestOrder(t *testing.T) {
	c := framework.Share(t)
	var book diary
	var names []string
	initializers := graph(".order.example.com")
	for _, one := range initializers {
		names = append(names, one.Name)
	}
	c.RunInitializers(t, func(_ context.Context, name string, namespace *corev1.Namespace) error {
		book.write("begin " + namespace.Name + " " + name)
		defer book.write("end " + namespace.Name + " " + name)
		return nil
	}, names...)
	c.Configure(t, initializers...)
	var namespaces []string
	for range 10 {
		namespaces = append(namespaces, c.CreateNamespace(t, c.Admin).Name)
	}
	for _, namespace := range namespaces {
		c.WaitReady(t, namespace)
		lifecycle := c.WaitCurrent(t, namespace, "")
		checkOrder(t, lifecycle, len(names))
		for _, name := range names {
			for _, before := range helper.Predecessors(lifecycle, name) {
				if began, ended := book.first("begin "+namespace+" "+name), book.first("end "+namespace+" "+before); began < ended || ended < 0 {
					t.Errorf("%s: %q was called at %d, and %q, for which it waits, returned at %d", namespace, name, began, before, ended)
				}
			}
		}
	}
}

// TestOrderIsReported: conditions, the field selector, events, kubectl and the plugin show every current initializer,
// and what the others wait for.
func TestOrderIsReported(t *testing.T) {
	c := framework.Share(t)
	c.Configure(t, graph(".example.com")...)
	events := watchCurrent(t, c, "quota.example.com")
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, `True/InitializersPending waiting for initializers "dns.example.com", "mesh.example.com" (1 of 5) since `)
	c.WaitEvents(t, namespace, "InitializerRunning", "InitializerRunning")
	selects := func(name string, want bool) {
		t.Helper()
		list, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().List(t.Context(), metav1.ListOptions{FieldSelector: "status.currentInitializer=" + name})
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(list.Items, func(l v1alpha1.NamespaceLifecycle) bool { return l.Name == namespace })
		if found != want {
			t.Errorf("status.currentInitializer=%s selects %s: %t, want %t", name, namespace, found, want)
		}
	}
	selects("dns.example.com", true)
	selects("mesh.example.com", true)
	selects("quota.example.com", false)
	if out, err := c.Kubectl("get", "nsl", namespace); err != nil || !strings.Contains(out, "dns.example.com, mesh.example.com") {
		t.Errorf("%v\n%s", err, out)
	}
	status := c.MustPlugin(t, "status", namespace)
	for _, want := range []string{`dns.example.com +Running`, `mesh.example.com +Running`, `app.example.com +Waiting .*waits for mesh.example.com, quota.example.com`, `quota.example.com +Waiting .*waits for dns.example.com`} {
		matchesPart(t, status, want)
	}
	why, err := c.Why(t, namespace)
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, finding := range why.Findings {
		if finding.Cause == diagnosis.InitializerPending {
			messages = append(messages, finding.Message)
		}
	}
	if diff := []string{
		`waiting for initializer "dns.example.com"; after it: app.example.com (waits for mesh.example.com, quota.example.com), quota.example.com (waits for dns.example.com), last.example.com`,
		`waiting for initializer "mesh.example.com"; after it: app.example.com (waits for mesh.example.com, quota.example.com), last.example.com`,
	}; !slices.Equal(messages, diff) {
		t.Errorf("why says\n%s\nwant\n%s", strings.Join(messages, "\n"), strings.Join(diff, "\n"))
	}

	c.RefusedPlugin(t, `it is not the turn of initializer "app.example.com" in namespace "`+namespace+`": it waits for mesh.example.com, quota.example.com, and it is the turn of dns.example.com, mesh.example.com`,
		"done", namespace, "app.example.com")
	c.MustPlugin(t, "skip", namespace, "mesh.example.com")
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, `waiting for initializer "dns.example.com" (2 of 5) since `)
	c.MustPlugin(t, "done", namespace, "dns.example.com")
	lifecycle := c.WaitCurrent(t, namespace, "quota.example.com")
	if lifecycle.Status.Phase != v1alpha1.LifecycleInitializing || !slices.Equal(lifecycle.Spec.Skipped, []string{"mesh.example.com"}) {
		t.Errorf("the lifecycle is %+v", lifecycle)
	}
	events(watch.Added, namespace)
	for _, name := range []string{"quota.example.com", "app.example.com", "last.example.com"} {
		c.MustPlugin(t, "done", namespace, name)
	}
	events(watch.Deleted, namespace)
	c.WaitReady(t, namespace)
}

// matchesPart checks that a part of a text matches an expression.
func matchesPart(t *testing.T, text, expression string) {
	t.Helper()
	if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return regexp.MustCompile(expression).MatchString(line) }) {
		t.Errorf("no line matches %q:\n%s", expression, text)
	}
}

// watchCurrent watches the NamespaceLifecycles in which an initializer has its turn. The returned function waits for the
// next event of a namespace.
func watchCurrent(t *testing.T, c *framework.Cluster, name string) func(want watch.EventType, namespace string) {
	t.Helper()
	w, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Watch(t.Context(), metav1.ListOptions{FieldSelector: "status.currentInitializer=" + name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return func(want watch.EventType, namespace string) {
		t.Helper()
		for {
			select {
			case event, ok := <-w.ResultChan():
				if !ok {
					t.Fatal("the watch ended")
				}
				lifecycle, ok := event.Object.(*v1alpha1.NamespaceLifecycle)
				if !ok || lifecycle.Name != namespace || event.Type == watch.Modified {
					continue
				}
				if event.Type != want {
					t.Errorf("%s of %s, want %s", event.Type, namespace, want)
				}
				return
			case <-time.After(framework.Patience):
				t.Fatalf("no event of %s", namespace)
			}
		}
	}
}

// TestIgnoreAtDeadline: current initializers that do not act are skipped, each at its own deadline. Conditions, events and kubectl report
// it. The first deadline leaves a busy machine the time to report that all three have their turn.
func TestIgnoreAtDeadline(t *testing.T) {
	c := framework.Share(t)
	soon, late, stays := ordered("soon.example.com"), ordered("late.example.com"), ordered("stays.example.com")
	for one, seconds := range map[*v1alpha1.RegisteredInitializer]int32{&soon: 15, &late: 17} {
		one.FailurePolicy, one.TimeoutSeconds = new(v1alpha1.Ignore), &seconds
	}
	c.Configure(t, soon, late, stays)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, `"soon.example.com", "late.example.com", "stays.example.com" (1 of 3)`, " until ", "when it is skipped")
	lifecycle := c.WaitCurrent(t, namespace, "stays.example.com")
	for name, seconds := range map[string]int{"soon.example.com": 15, "late.example.com": 17} {
		entry := helper.Entry(lifecycle, name)
		if entry.State != v1alpha1.InitializerSkipped || entry.EndTime.Sub(entry.StartTime.Time) < time.Duration(seconds)*time.Second ||
			entry.LastActor != "system:serviceaccount:nsinit-system:nsinit-controller-manager" || entry.Message != fmt.Sprintf("skipped at its deadline of %ds", seconds) {
			t.Errorf("its entry is %+v", entry)
		}
	}
	if first, second := helper.Entry(lifecycle, "soon.example.com"), helper.Entry(lifecycle, "late.example.com"); second.EndTime.Before(first.EndTime) { // a busy machine skips both at the same time
		t.Errorf("skipped at %s and %s", first.EndTime, second.EndTime)
	}
	c.WaitCondition(t, namespace, v1alpha1.ConditionInitializing, `"stays.example.com" (3 of 3)`)
	if !c.IsClosed(t, namespace) {
		t.Error("the gate is open")
	}
	c.MustPlugin(t, "done", namespace, "stays.example.com")
	c.WaitReady(t, namespace)
	c.WaitCondition(t, namespace, v1alpha1.ConditionReady, `True/Initialized every initializer is done except for the skipped ones: ["soon.example.com" "late.example.com"]`)
	c.WaitEvents(t, namespace, "InitializerRunning", "InitializerRunning", "InitializerRunning", "InitializerSkipped", "InitializerSkipped", "InitializerDone", v1alpha1.ReasonInitialized)
	out, err := c.Kubectl("describe", "nsl", namespace)
	for _, part := range []string{"Skipped", "skipped at its deadline of 15s", "Done", "kubernetes-admin", "Start Time", "End Time", "Deadline"} {
		if !strings.Contains(out, part) {
			t.Errorf("kubectl describe does not show %q: %v\n%s", part, err, out)
		}
	}
}
