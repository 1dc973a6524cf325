/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	nsinitinformers "github.com/nsinit/nsinit/sdk/generated/informers/externalversions"
)

// model is a world and the controller that acts in it, whose caches show any former state.
type model struct {
	*world
	controller *Controller
	start      func() *Controller
	// seenNamespace and seenLifecycle are the versions that the caches show.
	seenNamespace, seenLifecycle int
	// seenAccount is the version of the ServiceAccount that the watch shows.
	seenAccount int
	// rival is another replica that acts while this one does not know that its lease is lost.
	rival *Controller
	// dead are initializers that never act, which have a failurePolicy, and participants that
	// never clean up.
	dead []string
}

// replica is what a replica of the controller reaches the servers with.
type replica struct {
	core   *corefake.Clientset
	nsinit *nsinitfake.Clientset
	exempt *exemptions.List
}

// newModels returns what makes models. The clients are made once, which takes long. A fake client
// serves one request at a time, so that each replica has its own.
func newModels(t *testing.T) func(*rapid.T) *model {
	exempt := newFixture(t, nil, nil).Exemptions
	first := replica{corefake.NewClientset(), nsinitfake.NewClientset(), exempt}
	second := replica{corefake.NewClientset(), nsinitfake.NewClientset(), exempt}
	return func(rt *rapid.T) *model {
		m := &model{world: newWorld(rt)}
		m.start = func() *Controller { return first.start(m.world) }
		m.dead = rapid.SampledFrom([][]string{nil, {"ignored.example.com"}, {"fails.example.com"}, {participantName}}).Draw(rt, "dead")
		m.rival = second.start(m.world)
		m.restart()
		return m
	}
}

func (r replica) start(w *world) *Controller {
	r.core.ReactionChain, r.nsinit.ReactionChain = nil, nil
	r.core.PrependReactor("*", "*", w.serve)
	r.nsinit.PrependReactor("*", "*", w.serve)
	mapper, accounts := w.accountClient()
	controller, err := New(Dependencies{
		Core: r.core, Nsinit: r.nsinit, Exemptions: r.exempt, Events: &record.FakeRecorder{}, Metrics: NewMetrics(), Clock: w.clock,
		Namespaces:   informers.NewSharedInformerFactory(r.core, 0).Core().V1().Namespaces(),
		Informers:    nsinitinformers.NewSharedInformerFactory(r.nsinit, 0),
		StalledAfter: time.Minute, Required: ObjectsByKubernetes()[:1], RequiredTimeout: 5 * time.Second, Metadata: accounts, Mapper: mapper,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(controller.queue.ShutDown)
	return controller
}

// restart replaces the controller by one that remembers nothing. Its caches are current.
func (m *model) restart() {
	m.controller = m.start()
	m.catchUp()
}

func (m *model) catchUp() {
	m.seenNamespace, m.seenLifecycle, m.seenAccount = len(m.namespaces)-1, len(m.lifecycles)-1, len(m.accounts)-1
}

// reconcile lets the controller take a step. Whether a request fails is up to disturb.
func (m *model) reconcile() {
	m.reconcileAs(m.controller, m.seenNamespace, m.seenLifecycle, m.seenAccount)
}

// rivalReconciles lets the other replica take a step, which is up to date and undisturbed. It may
// come between two requests of the first one.
func (m *model) rivalReconciles() {
	m.undisturbed(func() { m.reconcileAs(m.rival, len(m.namespaces)-1, len(m.lifecycles)-1, len(m.accounts)-1) })
}

// undisturbed does something in which nothing comes between the requests of a controller.
func (m *model) undisturbed(do func()) {
	disturb := m.disturb
	m.disturb = func() error { return nil }
	do()
	m.disturb = disturb
}

func (m *model) reconcileAs(controller *Controller, namespace, lifecycle, account int) {
	replace(controller.Namespaces.Informer().GetStore(), m.namespaces[namespace])
	replace(controller.Lifecycles.Informer().GetStore(), m.lifecycles[lifecycle])
	replace(controller.required[0].informer.GetStore(), m.accounts[account])
	if err := controller.handle(klog.NewContext(context.Background(), logr.Discard()), worldName); err == nil {
		controller.queue.Forget(worldName)
	}
}

// replace makes an object all that a cache holds.
func replace[T any](store cache.Store, object *T) {
	var objects []any
	if object != nil {
		objects = append(objects, object)
	}
	_ = store.Replace(objects, "")
}

// step is an action of a client.
type step struct {
	possible func() bool
	do       func()
}

func (m *model) alive() bool { return m.namespace != nil && m.namespace.DeletionTimestamp == nil }

// acting returns the initializers that have their turn, other than the built-in one.
func (m *model) acting() []string {
	if m.lifecycle == nil {
		return nil
	}
	return slices.DeleteFunc(helper.Acting(m.lifecycle), func(name string) bool { return name == v1alpha1.InitializerLifecycle })
}

// doing returns those of them that will do their work.
func (m *model) doing() []string {
	return slices.DeleteFunc(m.acting(), func(name string) bool { return name != participantName && slices.Contains(m.dead, name) })
}

func (m *model) hasTurn() bool { return len(m.acting()) > 0 }

// clean are the steps that have to come about for a namespace to open, or to be removed.
func (m *model) clean() map[string]step {
	steps := m.accountSteps()
	maps.Copy(steps, map[string]step{
		"kube-controller-manager empties the namespace": {
			func() bool {
				return m.empties() && !keepsContent(m.namespace)
			},
			func() {
				m.clock.Step(emptiesAfter)
				m.setAccount(nil)
				// It goes on when its report fails. Each later time, the report succeeds.
				if m.emptied[m.namespace.UID] || rapid.Bool().Draw(m.t, "the report succeeds") {
					m.change(func(n *corev1.Namespace) {
						utilnamespaces.SetCondition(&n.Status.Conditions, corev1.NamespaceCondition{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionFalse})
						utilnamespaces.SetCondition(&n.Status.Conditions, corev1.NamespaceCondition{Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionFalse})
					})
				}
				m.emptied[m.namespace.UID] = true
				m.release(corev1.FinalizerKubernetes)
			},
		},
		"another controller releases the namespace": {
			func() bool {
				return m.namespace != nil && m.namespace.DeletionTimestamp != nil && slices.Contains(m.namespace.Spec.Finalizers, otherFinalizer)
			},
			func() { m.release(otherFinalizer) },
		},
		"an initializer is done": {
			func() bool { return len(m.doing()) > 0 },
			func() {
				name := rapid.SampledFrom(m.doing()).Draw(m.t, "who is done")
				m.acted[m.lifecycle.UID+"/"+types.UID(name)] = true
				m.initialize(func(r *v1alpha1.NamespaceLifecycle) { helper.RemovePending(r, name) })
			},
		},
		"a participant cleans up": {
			func() bool { return m.lifecycle != nil && m.lifecycle.DeletionTimestamp != nil && len(m.living()) > 0 },
			func() {
				gone := m.living()[0]
				m.changeLifecycle(func(r *v1alpha1.NamespaceLifecycle) {
					r.Spec.Finalizers = slices.DeleteFunc(r.Spec.Finalizers, func(f v1alpha1.FinalizerName) bool { return f == gone })
				})
				m.removeLifecycleIfReleased()
			},
		},
	})
	return steps
}

// empties says whether kube-controller-manager tries to delete the content of the namespace.
func (m *model) empties() bool {
	return m.namespace != nil && m.namespace.DeletionTimestamp != nil && slices.Contains(m.namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// living returns the participants that will clean up.
func (m *model) living() []v1alpha1.FinalizerName {
	return slices.DeleteFunc(m.participants(), func(f v1alpha1.FinalizerName) bool {
		return f == participantName && slices.Contains(m.dead, participantName)
	})
}

// participantName is the name of a participant that may be dead: it initializes, and never cleans up.
const participantName = "participant.example.com"

// otherFinalizer is what another controller puts on namespaces.
const otherFinalizer corev1.FinalizerName = "openshift.com/origin"

// release removes a finalizer from a namespace that is deleted.
func (m *model) release(finalizer corev1.FinalizerName) {
	m.change(func(n *corev1.Namespace) {
		n.Spec.Finalizers = slices.DeleteFunc(n.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == finalizer })
	})
	m.removeIfReleased()
}

// initialize is a write to /initialize by another client than the controller.
func (m *model) initialize(change func(*v1alpha1.NamespaceLifecycle)) {
	m.changeLifecycle(func(r *v1alpha1.NamespaceLifecycle) {
		change(r)
		m.startTurns(r)
	})
}

// disturbances are the steps that may come at any time.
func (m *model) disturbances() map[string]step {
	always := func() bool { return true }
	return map[string]step{
		"a user creates the namespace": {
			func() bool { return m.namespace == nil },
			func() { m.setNamespace(m.newNamespace()) },
		},
		"a user deletes the namespace":                {func() bool { return m.namespace != nil }, m.deleteNamespace},
		"an administrator changes the configurations": {always, func() { m.plan = m.drawPlan() }},
		"an initializer fails": {m.hasTurn, func() {
			name := rapid.SampledFrom(m.acting()).Draw(m.t, "who fails")
			m.initialize(func(r *v1alpha1.NamespaceLifecycle) {
				failed(r)
				r.Spec.Initializers.FailedInitializer = name
			})
		}},
		"an administrator skips an initializer": {m.hasTurn, func() {
			name := rapid.SampledFrom(m.acting()).Draw(m.t, "who is skipped")
			m.initialize(func(r *v1alpha1.NamespaceLifecycle) {
				r.Spec.Skipped = append(r.Spec.Skipped, name)
				helper.RemovePending(r, name)
			})
		}},
		"time passes":                            {always, func() { m.clock.Step(time.Duration(rapid.IntRange(1, 90).Draw(m.t, "seconds")) * time.Second) }},
		"an administrator deletes the lifecycle": {func() bool { return m.lifecycle != nil }, m.deleteLifecycle},
		"an administrator releases the lifecycle": {func() bool { return m.lifecycle != nil }, func() {
			m.forced[m.lifecycle.Spec.NamespaceUID] = true
			m.changeLifecycle(func(r *v1alpha1.NamespaceLifecycle) { r.Spec.Finalizers = nil })
			m.removeLifecycleIfReleased()
		}},
		"an administrator opens the namespace": {func() bool { return m.namespace != nil && helper.IsClosed(m.namespace) }, m.openByHand},
		"an administrator empties the finalizers": {m.alive, func() {
			m.forced[m.namespace.UID] = true
			m.change(func(n *corev1.Namespace) { n.Spec.Finalizers = nil })
		}},
		// It does not count what it fails to delete.
		"kube-controller-manager is refused": {func() bool { return m.empties() && keepsContent(m.namespace) }, func() {
			m.change(func(n *corev1.Namespace) {
				utilnamespaces.SetCondition(&n.Status.Conditions, corev1.NamespaceCondition{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionFalse})
				utilnamespaces.SetCondition(&n.Status.Conditions, corev1.NamespaceCondition{Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionTrue})
			})
		}},
		"the controller has failed for long": {always, func() {
			for range reportAfter {
				m.controller.queue.AddRateLimited(worldName)
			}
		}},
		"another replica acts": {always, m.rivalReconciles},
		"lifecycles cannot be listed": {always, func() {
			m.controller.listing.problem = rapid.SampledFrom([]error{errLost, unreadableError()}).Draw(m.t, "problem")
		}},
		"lifecycles can be listed again": {always, func() { m.controller.listing.problem = nil }},
		"the cache of namespaces catches up": {always, func() {
			m.seenNamespace = rapid.IntRange(m.seenNamespace, len(m.namespaces)-1).Draw(m.t, "version")
		}},
		"the watch of ServiceAccounts catches up": {always, func() { m.seenAccount = rapid.IntRange(m.seenAccount, len(m.accounts)-1).Draw(m.t, "version") }},
		"the cache of lifecycles catches up":      {always, func() { m.seenLifecycle = rapid.IntRange(m.seenLifecycle, len(m.lifecycles)-1).Draw(m.t, "version") }},
	}
}

// breakDown is an outage that each replica notices, as its requests fail again and again. The controller acts some time before and
// after it.
func (m *model) breakDown() {
	m.catchUp()
	m.undisturbed(m.reconcile)
	m.clock.Step(time.Duration(rapid.IntRange(0, 30).Draw(m.t, "seconds before the outage")) * time.Second)
	from := m.clock.Now()
	for i := range rapid.IntRange(2, 9).Draw(m.t, "failures") {
		if i > 0 {
			m.clock.Step(outageGap - time.Second)
		}
		m.controller.turns.interrupt(m.clock.Now())
		m.rival.turns.interrupt(m.clock.Now())
	}
	m.outages = append(m.outages, outage{from, m.clock.Now()})
	m.clock.Step(time.Duration(rapid.IntRange(0, 120).Draw(m.t, "seconds after the outage")) * time.Second)
	m.undisturbed(m.reconcile)
}

func (m *model) newNamespace() *corev1.Namespace {
	n := namespace(func(n *corev1.Namespace) { n.Name, n.UID, n.CreationTimestamp = worldName, m.nextUID(), *m.now() })
	if rapid.IntRange(0, 9).Draw(m.t, "is from before nsinit") < 9 {
		closed(n)
		n.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "tenant"}
	}
	if rapid.Bool().Draw(m.t, "has another finalizer") {
		n.Spec.Finalizers = append(n.Spec.Finalizers, otherFinalizer)
	}
	return n
}

// openByHand is what kube-apiserver does when an administrator removes the label. It may not know
// the user.
func (m *model) openByHand() {
	known := rapid.Bool().Draw(m.t, "the user is known")
	m.change(func(n *corev1.Namespace) {
		n.Labels = nil
		if known {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationOpenedBy, "administrator")
		}
	})
	m.removeIfReleased()
}

// drawPlan returns what configurations may say: initializers without an order, or in any order without a cycle.
func (m *model) drawPlan() []v1alpha1.PlannedInitializer {
	unordered := rapid.SampledFrom(plans()).Draw(m.t, "plan")
	plan := slices.Clone(unordered)
	for i := range plan {
		if rapid.Bool().Draw(m.t, "has no order") {
			continue
		}
		plan[i].Ordering = &v1alpha1.InitializerOrdering{}
		for _, other := range plan {
			if other.Name != plan[i].Name && rapid.IntRange(0, 2).Draw(m.t, "comes after it") == 0 {
				plan[i].Ordering.After = append(plan[i].Ordering.After, other.Name)
			}
		}
	}
	lifecycle := aLifecycle()
	for _, planned := range plan {
		pending(planned.Name)(lifecycle)
	}
	lifecycle.Spec.Plan = plan
	for len(helper.Pending(lifecycle)) > 0 {
		current := helper.CurrentInitializers(lifecycle)
		if len(current) == 0 {
			return unordered // the rest waits for each other, which the server refuses
		}
		helper.RemovePending(lifecycle, current[0])
	}
	return plan
}

// plans are what configurations may say.
func plans() [][]v1alpha1.PlannedInitializer {
	first := v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "first.example.com"}}
	last := v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "last.example.com"}}
	acts := v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: participantName, Finalizer: true}}
	holds := v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: participantName, Finalizer: true, Holds: new(v1alpha1.HoldContent)}}
	ignored := v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "ignored.example.com", FailurePolicy: new(v1alpha1.Ignore), TimeoutSeconds: new(int32(30))}}
	fails := v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "fails.example.com", FailurePolicy: new(v1alpha1.Fail), TimeoutSeconds: new(int32(120)), Finalizer: true}}
	return [][]v1alpha1.PlannedInitializer{nil, {first, last}, {acts}, {first, acts, last}, {ignored, last}, {ignored, fails}, {fails, acts}, {holds}, {first, holds, fails}, {first, ignored, last}, {first, acts, ignored, fails, last}}
}

// interrupt is what may happen around a request of the controller: nothing, a step of a client
// else, or the loss of the request or of its answer.
func (m *model) interrupt() error {
	steps := m.clean()
	maps.Copy(steps, m.disturbances())
	names := []string{"nothing", "nothing", "nothing", "nothing", "the connection is lost"}
	for name, step := range steps {
		if step.possible() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	switch name := rapid.SampledFrom(names).Draw(m.t, "meanwhile"); name {
	case "nothing":
	case "the connection is lost":
		return errLost
	default:
		steps[name].do()
	}
	return nil
}

// TestControllerKeepsPromises makes the controller and its clients act in any order, also
// between two requests of the controller. The world checks each request. At the end, only those
// act who have to, and the namespace opens or is removed.
func TestControllerKeepsPromises(t *testing.T) {
	newModel := newModels(t)
	openings, parallel := 0, false
	for range 15 { // times rapid's number of checks
		rapid.Check(t, func(t *rapid.T) {
			m := newModel(t)
			m.run()
			m.settle()
			openings, parallel = openings+len(m.opened), parallel || m.parallel
		})
	}
	if openings == 0 || !parallel {
		t.Errorf("%d gates opened, several initializers had their turn at one time: %t", openings, parallel)
	}
}

// run takes steps in any order.
func (m *model) run() {
	actions := map[string]func(*rapid.T){
		"the controller reconciles": func(*rapid.T) { m.reconcile() },
		"the controller is up to date": func(*rapid.T) {
			m.catchUp()
			m.reconcile()
		},
		"the controller restarts":      func(*rapid.T) { m.restart() },
		"all goes well for some steps": func(*rapid.T) { m.goOn() },
		"the controller is paused":     func(*rapid.T) { m.pause() },
		"requests fail for a while":    func(*rapid.T) { m.breakDown() },
	}
	for _, steps := range []map[string]step{m.clean(), m.disturbances()} {
		for name, step := range steps {
			actions[name] = func(t *rapid.T) {
				if !step.possible() {
					t.Skip()
				}
				step.do()
			}
		}
	}
	m.plan = m.drawPlan()
	m.setNamespace(m.newNamespace())
	m.goOn()
	m.disturb = m.interrupt
	m.t.Repeat(actions)
}

// goOn lets a number of steps pass that nothing disturbs.
func (m *model) goOn() {
	m.undisturbed(func() {
		for range rapid.IntRange(0, 8).Draw(m.t, "rounds") {
			m.round()
		}
	})
}

// pause lets the other replica act while this one is paused, and then this one, which sees what it
// saw before.
func (m *model) pause() {
	disturb := m.disturb
	for range rapid.IntRange(1, 8).Draw(m.t, "rounds") {
		if rapid.Bool().Draw(m.t, "something happens") {
			_ = m.interrupt()
		}
		m.disturb = func() error { return nil }
		m.rivalReconciles()
		m.others()
		m.disturb = disturb
	}
	m.reconcile()
}

// round lets those act who have to, once each.
func (m *model) round() {
	m.catchUp()
	m.reconcile()
	m.checkEnded()
	m.others()
}

// checkEnded: whatever has just happened, the controller ends an initialization in one step after an
// administrator opened the namespace.
func (m *model) checkEnded() {
	if m.current() && m.alive() && !helper.IsClosed(m.namespace) && m.lifecycle.DeletionTimestamp == nil && helper.Failure(m.lifecycle) == nil &&
		m.controller.listing.problem == nil && len(helper.Pending(m.lifecycle)) > 0 {
		m.t.Fatalf("the namespace is open, and an initializer still has its turn: %s", m.describe())
	}
}

// others lets those act who have to, but for the controller.
func (m *model) others() {
	steps := m.clean()
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		if steps[name].possible() {
			steps[name].do()
		}
	}
}

// settle goes on until nothing changes any more, and checks what came of it.
func (m *model) settle() {
	m.disturb = func() error { return nil }
	m.controller.listing.problem = nil
	m.round() // a controller that has restarted begins to measure the turns
	for round, before := 0, -1; m.version != before; round++ {
		if round == 40 {
			m.t.Fatalf("the namespace still changes after %d rounds: %s", round, m.describe())
		}
		before = m.version
		m.clock.Step(time.Hour) // each deadline is shorter, also with outages
		m.round()
	}
	m.checkReason()
	if m.current() && !m.alive() && !m.forced[m.namespace.UID] && keepsContent(m.namespace) && len(helper.ContentHolders(m.lifecycle)) > 0 && (m.emptied[m.namespace.UID] || m.empties()) {
		m.t.Fatalf("a participant holds the content, which kube-controller-manager deletes: %s", m.describe())
	}
	gone := m.namespace == nil && m.lifecycle == nil
	// A released namespace cannot be written to, see isFalselyReady.
	if m.namespace != nil && !isReleased(m.namespace) && m.says(v1alpha1.ConditionFailing, corev1.ConditionTrue) {
		m.t.Fatalf("nothing fails, but the namespace says so: %s", m.describe())
	}
	if !gone && !m.isOpen() && !m.isHeld() {
		m.t.Fatalf("the namespace neither opened nor was it removed: %s", m.describe())
	}
}

// isOpen says whether the initialization has ended, and the namespace says how: an administrator
// opened it if the lifecycle says so.
func (m *model) isOpen() bool {
	if !m.current() || !m.alive() || m.lifecycle.DeletionTimestamp != nil || helper.IsClosed(m.namespace) || len(helper.Pending(m.lifecycle)) > 0 {
		return false
	}
	ready := utilnamespaces.TrueCondition(m.namespace.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Message != "" && (!reportsOpenedByHand(m.lifecycle) || ready.Reason == v1alpha1.ReasonOpenedByHand)
}

// isHeld says whether all waits for a participant that is dead: its own namespace, which
// terminates, or the next one of that name, which says so and can be deleted.
func (m *model) isHeld() bool {
	if m.lifecycle == nil || m.lifecycle.DeletionTimestamp == nil || len(m.participants()) == 0 || len(m.living()) > 0 {
		return false
	}
	return m.namespace == nil || m.current() && !m.alive() && !isFalselyReady(m.namespace) || m.alive() && (!helper.IsClosed(m.namespace) || m.says(v1alpha1.ConditionInitializing, corev1.ConditionTrue))
}

// says says whether a condition of the namespace has a status.
func (m *model) says(condition corev1.NamespaceConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(m.namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == condition && c.Status == status && c.Message != ""
	})
}

func (m *model) describe() string {
	return "next is " + string(next(state{namespace: m.namespace, lifecycle: m.lifecycle})) + "\n" + text(m.namespace) + "\n" + text(m.lifecycle)
}

func text(object any) string {
	data, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
