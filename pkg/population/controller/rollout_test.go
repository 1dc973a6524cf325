/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

// world is a cluster in which population p has one manifest. It implements Populator and Exemptions.
type world struct {
	population.Compiler
	core     *corefake.Clientset
	nsinit   *nsinitfake.Clientset
	metadata *metadatafake.FakeMetadataClient
	events   *record.FakeRecorder

	mu      sync.Mutex
	changed []func()
	known   bool
	// forbidden: the list of exemptions cannot be read.
	forbidden bool
	// ready is whether the population is ready.
	ready   metav1.ConditionStatus
	outcome population.Outcome
	// reporting is the outcome of reports, if it is another one.
	reporting population.Outcome
	lost      bool // the list of exemptions is deleted when a namespace gets its objects
	// twentieth is called when twenty namespaces have got their objects, if it is set.
	twentieth  func(*world)
	controller *Controller
	rolled     []string
	reported   []string
	// err is the error of each check, or only of the namespaces failing. tries counts the checks that have it.
	err     error
	failing func(namespace string) bool
	tries   int
}

// Has implements Exemptions: the namespace exempt is, and the prefix tool- is.
func (w *world) Has(name, generateName string) (exempt, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := installation.ParseExemptions(&corev1.ConfigMap{Data: map[string]string{installation.KeyNamespaces: "exempt", installation.KeyNamePrefixes: "tool-"}})
	return list.ExemptName(name, generateName) != nil, w.known
}

func (w *world) OnChange(changed func()) { w.changed = append(w.changed, changed) }

// readExemptions makes the list of exemptions known.
func (w *world) readExemptions() {
	w.mu.Lock()
	w.known, w.forbidden = true, false
	w.mu.Unlock()
	w.changed[0]()
}

func (w *world) HasSynced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.forbidden
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &world{core: corefake.NewClientset(), nsinit: nsinitfake.NewClientset(), metadata: metadatafake.NewSimpleMetadataClient(scheme), events: record.NewFakeRecorder(100), known: true, outcome: population.Created}
}

// namespace creates a namespace that p selects.
func (w *world) namespace(t *testing.T, name string, change func(*metav1.ObjectMeta)) {
	t.Helper()
	object := metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"team": "a"}}
	if change != nil {
		change(&object)
	}
	if _, err := w.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: object}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.metadata.Tracker().Create(corev1.SchemeGroupVersion.WithResource("namespaces"),
		&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: object}, ""); err != nil {
		t.Fatal(err)
	}
}

func (w *world) populate(t *testing.T, rollout v1alpha1.PopulationRolloutType) {
	t.Helper()
	if _, err := w.nsinit.NsinitV1alpha1().NamespacePopulations().Create(t.Context(), &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 1},
		Spec: v1alpha1.NamespacePopulationSpec{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}, Scope: v1alpha1.ScopeAll, Rollout: rollout, Manifests: []v1alpha1.PopulationManifest{
			{Name: "m", Template: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`)}},
		}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// update changes population p.
func (w *world) update(t *testing.T, change func(*v1alpha1.NamespacePopulation)) {
	t.Helper()
	p := w.population(t)
	change(p)
	if _, err := w.nsinit.NsinitV1alpha1().NamespacePopulations().Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) population(t *testing.T) *v1alpha1.NamespacePopulation {
	t.Helper()
	p, err := w.nsinit.NsinitV1alpha1().NamespacePopulations().Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start starts a controller, and returns a function that stops it.
func (w *world) start(t *testing.T) func() {
	t.Helper()
	c, err := New(Config{Core: w.core, Nsinit: w.nsinit, Metadata: w.metadata, Populator: w, Exemptions: w, Events: w.events, Clock: clock.RealClock{}, Retry: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	w.controller = c
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { c.Run(ctx) })
	return func() {
		cancel()
		group.Wait()
	}
}

func (w *world) resultOf(object population.Key) population.Result {
	result := population.Result{Target: population.Target{Key: object}, Outcome: w.outcome}
	if w.outcome == population.Refused {
		result.Message = "no rights"
	}
	return result
}

func (w *world) ReportRollOut(_ context.Context, namespace *corev1.Namespace, of *population.Population, _ []v1alpha1.PopulatedObject) (results []population.Result, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails(namespace.Name); err != nil {
		return nil, err
	}
	w.reported = append(w.reported, namespace.Name)
	for _, object := range population.Render([]*population.Population{of}, namespace) {
		result := w.resultOf(object.Key)
		result.Outcome = cmp.Or(w.reporting, result.Outcome)
		results = append(results, result)
	}
	return results, nil
}

// RollOut stores the outcome in the inventory, as populator.RollOut does.
func (w *world) RollOut(ctx context.Context, namespace *corev1.Namespace, of *population.Population) ([]population.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails(namespace.Name); err != nil {
		return nil, err
	}
	if w.rolled = append(w.rolled, namespace.Name); len(w.rolled) == 20 && w.twentieth != nil {
		w.twentieth(w)
	}
	if c := w.controller; c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.busy[namespace.Name] == nil {
			return nil, errors.New("workers can repair it meanwhile")
		}
	}
	w.known = w.known && !w.lost
	result := w.resultOf(population.Key{Population: "p", Manifest: "m"})
	entry := v1alpha1.PopulatedObject{Population: "p", Manifest: "m", APIVersion: "v1", Kind: "ConfigMap", Name: "m", UID: "m", State: v1alpha1.PopulatedObjectApplied}
	if result.Outcome == population.Refused {
		entry.UID, entry.State, entry.Message = "", v1alpha1.PopulatedObjectFailed, result.Message
	}
	inventories := w.nsinit.NsinitV1alpha1().PopulatedNamespaces()
	results := []population.Result{result}
	if former, err := inventories.Get(ctx, namespace.Name, metav1.GetOptions{}); err == nil {
		for _, task := range population.Plan(population.RollOut, "p", []*population.Population{of}, nil, former.Status.Objects) {
			if task.Obsolete {
				results = append(results, population.Result{Target: task.Target(), Outcome: population.Deleted})
			}
		}
	}
	_ = inventories.Delete(ctx, namespace.Name, metav1.DeleteOptions{})
	_, err := inventories.Create(ctx, &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: namespace.UID},
		Status: v1alpha1.PopulatedNamespaceStatus{Objects: []v1alpha1.PopulatedObject{entry}}}, metav1.CreateOptions{})
	return results, err
}

func (w *world) Populate(context.Context, *corev1.Namespace, population.Mode) error { return nil }

func (w *world) Forget(context.Context, *v1alpha1.PopulatedNamespace) error { return nil }

// Readiness implements Populator: whether p is ready is not known, unless w is.
func (w *world) Readiness(_ context.Context, p *v1alpha1.NamespacePopulation) metav1.Condition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: cmp.Or(w.ready, metav1.ConditionUnknown), Reason: "R", ObservedGeneration: p.Generation}
}

// fails returns the error of a check. The lock must be held.
func (w *world) fails(namespace string) error {
	if w.err == nil || w.failing != nil && !w.failing(namespace) {
		return nil
	}
	w.tries++
	return w.err
}

// set changes the outcome of later attempts.
func (w *world) set(outcome population.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcome = outcome
}

// check compares the state of the rollout, and the namespaces that it has tried since the last check.
func (w *world) check(t *testing.T, reason, counts, rolled string) {
	t.Helper()
	synctest.Wait()
	status := w.population(t).Status
	gotReason, gotCounts := "", ""
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRolledOut); condition != nil {
		gotReason = condition.Reason
	}
	if status.Rollout != nil {
		gotCounts = fmt.Sprintf("%d/%d", status.Rollout.Current, status.Rollout.Namespaces)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.rolled) // some at the same time
	if gotRolled := strings.Join(w.rolled, " "); gotReason != reason || gotCounts != counts || gotRolled != rolled {
		t.Errorf("%q %q, tried %q; want %q %q, %q", gotReason, gotCounts, gotRolled, reason, counts, rolled)
	}
	w.rolled = nil
}

// in runs a test in virtual time, with a world.
func in(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// TestSelected: a rollout reaches open namespaces that the population selects. A changed label takes effect immediately.
func TestSelected(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		now := metav1.Now()
		w.namespace(t, "shop", nil)
		w.namespace(t, "another", func(n *metav1.ObjectMeta) { n.Labels = nil })
		w.namespace(t, "exempt", func(n *metav1.ObjectMeta) { n.GenerateName = "ex" })
		w.namespace(t, "tool-a", func(n *metav1.ObjectMeta) { n.GenerateName = "tool-" })
		w.namespace(t, "tool-b", func(n *metav1.ObjectMeta) { n.GenerateName = "to" })
		w.namespace(t, "kube-system", nil)
		w.namespace(t, "closed", func(n *metav1.ObjectMeta) { n.Labels[v1alpha1.LabelInitializing] = "true" })
		w.namespace(t, "frozen", func(n *metav1.ObjectMeta) { n.Labels[v1alpha1.LabelFrozen] = "true" })
		w.namespace(t, "deleted", func(n *metav1.ObjectMeta) { n.DeletionTimestamp, n.Finalizers = &now, []string{"x/y"} })
		w.populate(t, v1alpha1.RolloutApply)
		defer w.start(t)()
		time.Sleep(time.Second)
		w.check(t, v1alpha1.ReasonRolloutComplete, "2/2", "shop tool-b")

		another, err := w.core.CoreV1().Namespaces().Get(t.Context(), "another", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		another.Labels = map[string]string{"team": "a"}
		if _, err := w.core.CoreV1().Namespaces().Update(t.Context(), another, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.metadata.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"),
			&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: another.ObjectMeta}, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.check(t, v1alpha1.ReasonRolloutComplete, "3/3", "another")
		time.Sleep(time.Hour) // what is in the inventories is not checked again
		w.check(t, v1alpha1.ReasonRolloutComplete, "3/3", "")
	})
}

// TestReports: a report gives no namespace an object, also after another process took over. Then it is applied.
func TestReports(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.namespace(t, "a", nil)
		w.namespace(t, "b", nil)
		w.populate(t, "")
		stop := w.start(t)
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutReported, "0/2", "")
		stop()
		defer w.start(t)()
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutReported, "0/2", "")
		slices.Sort(w.reported) // some at the same time
		if got := strings.Join(w.reported, " "); got != "a a b b" {
			t.Errorf("reported %s", got)
		}
		w.update(t, func(p *v1alpha1.NamespacePopulation) { p.Generation, p.Spec.Rollout = 2, v1alpha1.RolloutApply })
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutComplete, "2/2", "a b")
		if p := w.population(t); p.Status.Rollout.ObservedGeneration != 2 || meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut).ObservedGeneration != 2 {
			t.Errorf("the status is %+v", p.Status)
		}
		// The status of a rollout is removed with the scope.
		w.update(t, func(p *v1alpha1.NamespacePopulation) {
			p.Generation, p.Spec.Scope, p.Spec.Rollout = 3, v1alpha1.ScopeNew, ""
		})
		time.Sleep(2 * time.Second)
		w.check(t, "", "", "")
	})
}

// TestPauses: a rollout waits when three namespaces refuse objects. The next process starts with them, and continues when
// the cause does not exist any more: at the latest after a minute, and immediately when the population becomes ready.
func TestPauses(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *world){
		"after a minute": func(*testing.T, *world) { time.Sleep(retryRefused) },
		"when it is ready": func(_ *testing.T, w *world) {
			w.mu.Lock()
			w.ready = metav1.ConditionTrue
			w.mu.Unlock()
			time.Sleep(recheckReady)
		},
		"when it is labelled": func(t *testing.T, w *world) {
			w.update(t, func(p *v1alpha1.NamespacePopulation) { p.Labels = map[string]string{"again": "1"} })
		},
		"when it is annotated": func(t *testing.T, w *world) {
			w.update(t, func(p *v1alpha1.NamespacePopulation) { p.Annotations = map[string]string{"again": "1"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					w.namespace(t, name, nil)
				}
				w.set(population.Refused)
				w.populate(t, v1alpha1.RolloutApply)
				stop := w.start(t)
				time.Sleep(2 * time.Second)
				w.check(t, v1alpha1.ReasonRolloutPaused, "0/5", "a b c")
				if event := <-w.events.Events; !strings.HasPrefix(event, "Warning RolloutPaused 0 of 5 namespaces have received every object; paused because 3 namespaces refused objects, such as manifest m in namespace a: no rights") {
					t.Errorf("the event is %s", event)
				}
				time.Sleep(retryRefused)
				w.check(t, v1alpha1.ReasonRolloutPaused, "0/5", "a b c")
				stop()
				defer w.start(t)()
				time.Sleep(2 * time.Second)
				w.check(t, v1alpha1.ReasonRolloutPaused, "0/5", "a b c")

				w.set(population.Created)
				time.Sleep(10 * time.Second)
				w.check(t, v1alpha1.ReasonRolloutPaused, "0/5", "")
				change(t, w)
				time.Sleep(2 * time.Second)
				w.check(t, v1alpha1.ReasonRolloutComplete, "5/5", "a b c d e")
				if event := <-w.events.Events; event != "Normal RolloutComplete 5 of 5 namespaces have received every object" {
					t.Errorf("the event is %s", event)
				}
			})
		})
	}
}

// TestBatch: a rollout to many namespaces ends early when something is wrong. Those that have begun at the same time do not.
func TestBatch(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*world)
		reason  string
		more    int // namespaces that are tried, at most
	}{
		"nothing":                {func(*world) {}, v1alpha1.ReasonRolloutComplete, 80},
		"a namespace refuses":    {func(w *world) { w.outcome = population.Refused }, v1alpha1.ReasonRolloutPaused, tooMany - 1 + atOnce},
		"exemptions are unknown": {func(w *world) { w.known = false }, v1alpha1.ReasonRolloutExemptionsUnknown, atOnce - 1},
		"the API fails":          {func(w *world) { w.err = apierrors.NewInternalError(errors.New("etcd is gone")) }, v1alpha1.ReasonRolloutProgressing, 10 * atOnce},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				for i := range 100 {
					w.namespace(t, fmt.Sprintf("n%03d", i), nil)
				}
				w.twentieth = test.happens
				w.populate(t, v1alpha1.RolloutApply)
				defer w.start(t)()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				condition := meta.FindStatusCondition(w.population(t).Status.Conditions, v1alpha1.ConditionRolledOut)
				w.mu.Lock()
				defer w.mu.Unlock()
				if more := len(w.rolled) + w.tries - 20; condition == nil || condition.Reason != test.reason || more > test.more || more < 0 {
					t.Errorf("%d more namespaces were tried, want at most %d; %+v", more, test.more, condition)
				}
			})
		})
	}
}

// TestProbes: a paused rollout continues when a dry run in another namespace succeeds: a few tenants cannot stop it.
func TestProbes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			w.namespace(t, name, nil)
		}
		w.set(population.Refused)
		w.populate(t, v1alpha1.RolloutApply)
		defer w.start(t)()
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutPaused, "0/8", "a b c")
		w.mu.Lock()
		w.reporting = population.Created
		w.mu.Unlock()
		time.Sleep(retryRefused)
		w.check(t, v1alpha1.ReasonRolloutPaused, "0/8", "a b c d e f") // three more refuse
	})
}

// TestTemporary: an error that is temporary refuses nothing, and is in the status if it lasts. The namespace is checked again soon.
func TestTemporary(t *testing.T) {
	for rollout, done := range map[v1alpha1.PopulationRolloutType]string{v1alpha1.RolloutApply: v1alpha1.ReasonRolloutComplete, v1alpha1.RolloutReport: v1alpha1.ReasonRolloutReported} {
		t.Run(string(rollout), func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.namespace(t, "shop", nil)
				w.err = apierrors.NewServiceUnavailable("etcd is gone")
				w.populate(t, rollout)
				defer w.start(t)()
				time.Sleep(2 * time.Second)
				const text = "; namespace shop is tried again after an error: etcd is gone"
				condition := func() *metav1.Condition {
					return meta.FindStatusCondition(w.population(t).Status.Conditions, v1alpha1.ConditionRolledOut)
				}
				if status := w.population(t).Status.Rollout; status == nil || status.Refused != 0 || strings.Contains(condition().Message, text) {
					t.Errorf("the status is %+v, and the condition %+v", status, condition())
				}
				time.Sleep(10 * time.Second)
				if !strings.HasSuffix(condition().Message, text) {
					t.Errorf("the condition is %+v after ten seconds", condition())
				}
				w.mu.Lock()
				w.err = nil
				w.mu.Unlock()
				time.Sleep(20 * time.Second)
				if got := condition(); got.Reason != done || strings.Contains(got.Message, text) {
					t.Errorf("the condition is %+v", got)
				}
			})
		})
	}
}

// TestLasting: errors that last in some namespaces do not delay the others, and one is in the status. These namespaces are
// checked again with a growing delay.
func TestLasting(t *testing.T) {
	const namespaces = 60
	for name, test := range map[string]struct {
		rollout v1alpha1.PopulationRolloutType
		failing func(string) bool
		count   int
		done    string
	}{
		"the first":           {v1alpha1.RolloutApply, func(name string) bool { return name == "n00" }, 1, v1alpha1.ReasonRolloutComplete},
		"the last":            {v1alpha1.RolloutApply, func(name string) bool { return name == "n59" }, 1, v1alpha1.ReasonRolloutComplete},
		"one of each batch":   {v1alpha1.RolloutApply, func(name string) bool { return strings.ContainsAny(name[2:], "048") }, 18, v1alpha1.ReasonRolloutComplete},
		"one report":          {v1alpha1.RolloutReport, func(name string) bool { return name == "n00" }, 1, v1alpha1.ReasonRolloutReported},
		"one report of three": {v1alpha1.RolloutReport, func(name string) bool { return strings.ContainsAny(name[2:], "048") }, 18, v1alpha1.ReasonRolloutReported},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				for i := range namespaces {
					w.namespace(t, fmt.Sprintf("n%02d", i), nil)
				}
				w.err, w.failing = apierrors.NewInternalError(errors.New("no key to decrypt")), test.failing
				w.populate(t, test.rollout)
				defer w.start(t)()
				check := func(checked int, reason, message string) {
					t.Helper()
					status := w.population(t).Status
					condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRolledOut)
					if int(status.Rollout.Checked) != checked || condition.Reason != reason || !strings.Contains(condition.Message, message) {
						t.Errorf("the status is %+v, and the condition %+v", status.Rollout, condition)
					}
				}
				progress := map[string]string{v1alpha1.ReasonRolloutComplete: v1alpha1.ReasonRolloutProgressing, v1alpha1.ReasonRolloutReported: v1alpha1.ReasonRolloutReporting}[test.done]
				time.Sleep(15 * time.Second)
				check(namespaces-test.count, progress, " is tried again after an error: Internal error occurred: no key to decrypt")
				time.Sleep(time.Hour)
				w.mu.Lock()
				if w.tries < 10*test.count || w.tries > 80*test.count {
					t.Errorf("tried %d times in an hour", w.tries)
				}
				w.err = nil
				w.mu.Unlock()
				time.Sleep(2 * maxRetry)
				check(namespaces, test.done, "")
			})
		})
	}
}

// TestOutage: while every check has an error, only a few namespaces are tried, with a growing delay.
func TestOutage(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		for i := range 100 {
			w.namespace(t, fmt.Sprintf("n%02d", i), nil)
		}
		w.err = apierrors.NewServiceUnavailable("etcd is gone")
		w.populate(t, v1alpha1.RolloutApply)
		defer w.start(t)()
		time.Sleep(time.Minute)
		w.mu.Lock()
		if w.tries < 5 || w.tries > 10 {
			t.Errorf("tried %d times in a minute", w.tries)
		}
		w.err = nil
		w.mu.Unlock()
		time.Sleep(2 * maxRetry)
		if status := w.population(t).Status.Rollout; status.Current != status.Namespaces {
			t.Errorf("the status is %+v", status)
		}
	})
}

// TestNamespacesUnknown: a rollout reports that the namespaces cannot be listed, and continues when they can.
func TestNamespacesUnknown(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var forbidden atomic.Bool
		forbidden.Store(true)
		w.metadata.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return forbidden.Load(), nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "", nil)
		})
		w.namespace(t, "shop", nil)
		w.populate(t, v1alpha1.RolloutApply)
		defer w.start(t)()
		time.Sleep(patience + time.Second)
		w.check(t, v1alpha1.ReasonRolloutNamespacesUnknown, "", "")
		forbidden.Store(false)
		time.Sleep(2 * time.Minute)
		w.check(t, v1alpha1.ReasonRolloutComplete, "1/1", "shop")
	})
}

// TestDeselected: objects of a removed manifest are deleted also in namespaces that the population does not select any more.
func TestDeselected(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.namespace(t, "shop", func(n *metav1.ObjectMeta) { n.Labels = nil })
		if _, err := w.nsinit.NsinitV1alpha1().PopulatedNamespaces().Create(t.Context(), &v1alpha1.PopulatedNamespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "uid-shop"},
			Status: v1alpha1.PopulatedNamespaceStatus{Objects: []v1alpha1.PopulatedObject{{Population: "p", Manifest: "old", APIVersion: "v1", Kind: "ConfigMap", Name: "old", UID: "u", PrunePolicy: v1alpha1.PruneDelete}}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.populate(t, v1alpha1.RolloutApply)
		defer w.start(t)()
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutComplete, "0/0", "shop")
	})
}

// TestExemptionsUnknown: without the list of exemptions, or the permission to read it, no namespace gets an object.
func TestExemptionsUnknown(t *testing.T) {
	for name, forbidden := range map[string]bool{"missing": false, "forbidden": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.namespace(t, "shop", nil)
				w.known, w.forbidden = false, forbidden
				w.populate(t, v1alpha1.RolloutApply)
				defer w.start(t)()
				if forbidden {
					time.Sleep(patience - time.Second)
					w.check(t, "", "", "") // it may only be slow
				}
				time.Sleep(2 * time.Second)
				w.check(t, v1alpha1.ReasonRolloutExemptionsUnknown, "", "")
				w.readExemptions()
				time.Sleep(2 * time.Second)
				w.check(t, v1alpha1.ReasonRolloutComplete, "1/1", "shop")
			})
		})
	}
}

// TestExemptionsDeleted: a rollout during which the list of exemptions is deleted is not complete.
func TestExemptionsDeleted(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.namespace(t, "shop", nil)
		w.lost = true
		w.populate(t, v1alpha1.RolloutApply)
		defer w.start(t)()
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutExemptionsUnknown, "", "shop")
		if len(w.events.Events) > 0 {
			t.Errorf("the event is %s", <-w.events.Events)
		}
		w.readExemptions()
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutComplete, "1/1", "")
	})
}

// TestInvalid: the status of a population that does not compile any more says so, until the population is changed.
func TestInvalid(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.namespace(t, "shop", nil)
		w.populate(t, v1alpha1.RolloutApply)
		defer w.start(t)()
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutComplete, "1/1", "shop")
		w.update(t, func(p *v1alpha1.NamespacePopulation) { p.Generation, p.Spec.Manifests[0].When = 2, "nonsense(" })
		time.Sleep(2 * time.Second)
		w.check(t, population.ReasonInvalid, "", "")
		condition := meta.FindStatusCondition(w.population(t).Status.Conditions, v1alpha1.ConditionRolledOut)
		if condition.Status != metav1.ConditionFalse || condition.ObservedGeneration != 2 || !strings.Contains(condition.Message, "spec.manifests[0].when") {
			t.Errorf("the condition is %+v", condition)
		}
		w.update(t, func(p *v1alpha1.NamespacePopulation) { p.Generation, p.Spec.Manifests[0].When = 3, "" })
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutComplete, "1/1", "")
	})
}

// TestGenerationAgain: a spec takes effect although a former spec, which was lost with the storage, had the same generation.
func TestGenerationAgain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.namespace(t, "shop", nil)
		w.populate(t, v1alpha1.RolloutApply)
		defer w.start(t)()
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutComplete, "1/1", "shop")
		w.update(t, func(p *v1alpha1.NamespacePopulation) { p.Spec.NamespaceSelector = nil })
		w.namespace(t, "another", func(n *metav1.ObjectMeta) { n.Labels = nil })
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutComplete, "2/2", "another")
	})
}

// TestFormerNamespace: a namespace that was deleted and created again since it was listed gets nothing, and an inventory of
// a former namespace does not count.
func TestFormerNamespace(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.namespace(t, "shop", nil)
		recreated, err := w.core.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		recreated.UID = "new"
		if _, err := w.core.CoreV1().Namespaces().Update(t.Context(), recreated, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.RollOut(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "former"}}, nil); err != nil {
			t.Fatal(err)
		}
		w.rolled = nil
		w.populate(t, v1alpha1.RolloutApply)
		defer w.start(t)()
		time.Sleep(2 * time.Second)
		w.check(t, v1alpha1.ReasonRolloutProgressing, "0/1", "")
	})
}
