/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const worldName = "ns"

var errLost = errors.New("the connection was lost")

// world is a model of what the controller meets under one name: the two API servers,
// kube-controller-manager, initializers, participants and privileged users. It executes the
// controller's requests as the servers do, with optimistic locking and preconditions, and
// fails the test when a request breaks a promise.
type world struct {
	t     *rapid.T
	clock *testingclock.FakeClock
	// version and incarnation count resourceVersions and UIDs.
	version, incarnation int

	namespace *corev1.Namespace
	lifecycle *v1alpha1.NamespaceLifecycle
	// plan is what the configurations say now.
	plan []v1alpha1.PlannedInitializer
	// namespaces and lifecycles are all versions so far, from which a cache may show any
	// that is not older than what it showed last.
	namespaces []*corev1.Namespace
	lifecycles []*v1alpha1.NamespaceLifecycle

	// disturb runs before and after each request of the controller. An error is what the
	// controller gets instead of the answer.
	disturb func() error
	// mayOpen are the namespaces that were complete at one moment.
	mayOpen map[types.UID]bool
	// opened counts how often the controller opened each gate.
	opened map[types.UID]int
	// open are the namespaces that were open at some time. None closes again.
	open map[types.UID]bool
	// emptied are the deleted namespaces whose content kube-controller-manager removed.
	emptied map[types.UID]bool
	// failed are the namespaces for which a failure was recorded.
	failed map[types.UID]bool
	// acted are the initializers that have done their work, as UID of the lifecycle/name.
	acted map[types.UID]bool
	// parallel says that several initializers had their turn at one time.
	parallel bool
	// forced are the namespaces whose finalizers a privileged user overrode, and the lifecycles
	// that one deleted while their namespaces lived.
	forced map[types.UID]bool
	// outages are when requests failed, in order.
	outages []outage
	accountModel
}

// outage is a time in which requests failed.
type outage struct{ from, to time.Time }

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, clock: testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), disturb: func() error { return nil },
		mayOpen: map[types.UID]bool{}, opened: map[types.UID]int{}, open: map[types.UID]bool{}, emptied: map[types.UID]bool{},
		failed: map[types.UID]bool{}, forced: map[types.UID]bool{}, acted: map[types.UID]bool{}, accountModel: newAccountModel(t),
	}
	w.setNamespace(nil)
	w.setLifecycle(nil)
	return w
}

func (w *world) nextUID() types.UID {
	w.incarnation++
	return types.UID(fmt.Sprintf("uid-%d", w.incarnation))
}

func (w *world) nextVersion() string {
	w.version++
	return fmt.Sprint(w.version)
}

func (w *world) now() *metav1.Time { return &metav1.Time{Time: w.clock.Now()} }

// setNamespace stores a namespace, or its absence.
func (w *world) setNamespace(namespace *corev1.Namespace) {
	version := w.nextVersion() // of a removal, too
	if namespace != nil {
		namespace = namespace.DeepCopy()
		namespace.ResourceVersion = version
		w.open[namespace.UID] = w.open[namespace.UID] || !helper.IsClosed(namespace)
	}
	w.namespace, w.namespaces = namespace, append(w.namespaces, namespace)
	w.observe()
}

// setLifecycle stores a lifecycle, or its absence.
func (w *world) setLifecycle(lifecycle *v1alpha1.NamespaceLifecycle) {
	version := w.nextVersion()
	if lifecycle != nil {
		lifecycle = lifecycle.DeepCopy()
		lifecycle.ResourceVersion = version
		w.recordDone(lifecycle)
		meta.SetStatusCondition(&lifecycle.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionInitializing, Status: metav1.ConditionTrue, Message: fmt.Sprintf("pending: %q", helper.Pending(lifecycle))})
		w.parallel = w.parallel || len(helper.Acting(lifecycle)) > 1
		if helper.Failure(lifecycle) != nil {
			w.failed[lifecycle.Spec.NamespaceUID] = true
		}
	}
	w.lifecycle, w.lifecycles = lifecycle, append(w.lifecycles, lifecycle)
	w.observe()
}

// observe notes whether the namespace may open now.
func (w *world) observe() {
	w.observeAccount()
	if w.current() && w.namespace.DeletionTimestamp == nil && w.lifecycle.DeletionTimestamp == nil && len(helper.Pending(w.lifecycle)) == 0 && helper.Failure(w.lifecycle) == nil {
		w.mayOpen[w.namespace.UID] = true
		w.checkNoneLost()
	}
}

// checkNoneLost: each initializer of a complete plan has acted, or was skipped.
func (w *world) checkNoneLost() {
	for _, planned := range w.lifecycle.Spec.Plan {
		if planned.Name != v1alpha1.InitializerLifecycle && !w.acted[w.lifecycle.UID+"/"+types.UID(planned.Name)] && !slices.Contains(w.lifecycle.Spec.Skipped, planned.Name) {
			w.t.Fatalf("initializer %q is not pending any more, and neither acted nor was skipped: %+v", planned.Name, w.lifecycle)
		}
	}
}

// current says whether the lifecycle is that of the namespace.
func (w *world) current() bool {
	return w.namespace != nil && w.lifecycle != nil && w.lifecycle.Spec.NamespaceUID == w.namespace.UID
}

// participants returns who has not cleaned up.
func (w *world) participants() []v1alpha1.FinalizerName {
	return slices.DeleteFunc(slices.Clone(w.lifecycle.Spec.Finalizers), func(f v1alpha1.FinalizerName) bool { return f == v1alpha1.FinalizerKubernetes })
}

// change changes the namespace on behalf of another client than the controller.
func (w *world) change(change func(*corev1.Namespace)) {
	namespace := w.namespace.DeepCopy()
	change(namespace)
	w.setNamespace(namespace)
}

// changeLifecycle changes the lifecycle on behalf of another client than the controller.
func (w *world) changeLifecycle(change func(*v1alpha1.NamespaceLifecycle)) {
	lifecycle := w.lifecycle.DeepCopy()
	change(lifecycle)
	w.setLifecycle(lifecycle)
}

// removeIfReleased removes a namespace from storage that is deleted and that no finalizer holds.
func (w *world) removeIfReleased() {
	n := w.namespace
	if !isReleased(n) {
		return
	}
	if w.current() && !w.forced[n.UID] && !slices.Contains(helper.Pending(w.lifecycle), v1alpha1.InitializerLifecycle) && len(w.participants()) > 0 {
		w.t.Fatalf("the namespace was removed before these participants cleaned up: %q", w.participants())
	}
	w.setNamespace(nil)
}

// isReleased says whether the next write to a namespace removes it from storage.
func isReleased(n *corev1.Namespace) bool {
	return n.DeletionTimestamp != nil && len(n.Spec.Finalizers) == 0 && len(n.Finalizers) == 0
}

// serve is the reaction of both fake clients.
func (w *world) serve(action clienttesting.Action) (bool, runtime.Object, error) {
	if err := w.disturb(); err != nil {
		return true, nil, err
	}
	object, err := w.execute(action)
	if lost := w.disturb(); lost != nil && err == nil {
		return true, nil, lost
	}
	return true, object, err
}

func (w *world) execute(action clienttesting.Action) (runtime.Object, error) {
	request := action.GetVerb() + " " + action.GetResource().Resource + "/" + action.GetSubresource()
	switch a := action.(type) {
	case clienttesting.GetActionImpl:
		return w.get(action.GetResource().Resource)
	case clienttesting.DeleteActionImpl:
		return nil, w.delete(action.GetResource().Resource, a.DeleteOptions.Preconditions)
	case clienttesting.PatchActionImpl:
		return w.patchNamespace(a.GetPatch(), action.GetSubresource())
	case clienttesting.CreateAction: // an update, too
		switch sent := a.GetObject().(type) {
		case *corev1.Namespace:
			return w.updateNamespace(sent, action.GetSubresource())
		case *v1alpha1.NamespaceLifecycle:
			if action.GetVerb() == "create" {
				return w.createLifecycle(sent)
			}
			return w.updateLifecycle(sent, action.GetSubresource())
		}
	}
	w.t.Fatalf("the model does not know %s", request)
	return nil, nil
}

func (w *world) get(resource string) (runtime.Object, error) {
	switch {
	case resource == "namespaces" && w.namespace != nil:
		return w.namespace.DeepCopy(), nil
	case resource == "namespacelifecycles" && w.lifecycle != nil:
		return w.lifecycle.DeepCopy(), nil
	}
	return nil, notFound(resource)
}

func notFound(resource string) error {
	if resource == "namespaces" {
		return apierrors.NewNotFound(corev1.Resource(resource), worldName)
	}
	return apierrors.NewNotFound(v1alpha1.Resource(resource), worldName)
}

// locked says why a write must not be made: its object is gone, another, or has changed.
func locked(resource string, sent, stored metav1.Object) error {
	if sent.GetUID() != stored.GetUID() || sent.GetResourceVersion() != stored.GetResourceVersion() {
		return apierrors.NewConflict(v1alpha1.Resource(resource), worldName, errors.New("the object has been modified"))
	}
	return nil
}

// patchNamespace serves a strategic merge patch of a namespace. It names the version that the controller has read.
func (w *world) patchNamespace(patch []byte, subresource string) (runtime.Object, error) {
	if w.namespace == nil {
		return nil, notFound("namespaces")
	}
	stored, err := json.Marshal(w.namespace)
	if err != nil {
		return nil, err
	}
	patched, err := strategicpatch.StrategicMergePatch(stored, patch, corev1.Namespace{})
	if err != nil {
		return nil, err
	}
	sent := &corev1.Namespace{}
	if err := json.Unmarshal(patched, sent); err != nil {
		return nil, err
	}
	if !strings.Contains(string(patch), `"resourceVersion":`) {
		w.t.Fatalf("the patch names no version: %s", patch)
	}
	return w.updateNamespace(sent, subresource)
}

// updateNamespace serves PUT of namespaces, their status and finalize, by the controller.
func (w *world) updateNamespace(sent *corev1.Namespace, subresource string) (runtime.Object, error) {
	if w.namespace == nil {
		return nil, notFound("namespaces")
	}
	if err := locked("namespaces", sent, w.namespace); err != nil {
		return nil, err
	}
	updated := w.namespace.DeepCopy()
	if subresource == "finalize" {
		updated.ObjectMeta, updated.Spec = *sent.ObjectMeta.DeepCopy(), *sent.Spec.DeepCopy()
		w.checkFinalizers(updated)
	} else {
		updated.Labels, updated.Status = sent.Labels, sent.Status
		w.checkConditions(updated)
	}
	if helper.IsClosed(w.namespace) && !helper.IsClosed(updated) {
		w.opened[updated.UID]++
		w.checkUsable(updated.UID)
		if !w.mayOpen[updated.UID] {
			w.t.Fatalf("the gate opened, and the namespace was never complete: %+v", w.lifecycle)
		}
		if w.opened[updated.UID] > 1 {
			w.t.Fatalf("the gate of %s opened twice", updated.UID)
		}
	}
	if isReleased(updated) && !w.emptied[updated.UID] {
		w.t.Fatalf("a write to %q of the namespace removed it, and left its content in storage", subresource)
	}
	w.setNamespace(updated)
	answer := w.namespace.DeepCopy()
	w.removeIfReleased()
	return answer, nil
}

// checkFinalizers: the controller removes its own finalizer, after the lifecycle was removed, and no other.
func (w *world) checkFinalizers(updated *corev1.Namespace) {
	for _, name := range w.namespace.Spec.Finalizers {
		suspends := name == corev1.FinalizerKubernetes && updated.DeletionTimestamp != nil && keepsContent(updated)
		if !slices.Contains(updated.Spec.Finalizers, name) && !suspends {
			w.t.Fatalf("the controller removed %q from the finalizers of the namespace", name)
		}
	}
	if keepsContent(w.namespace) && !keepsContent(updated) {
		if w.current() && len(helper.ContentHolders(w.lifecycle)) > 0 {
			w.t.Fatalf("the content was released before %q cleaned up", helper.ContentHolders(w.lifecycle))
		}
		if !slices.Contains(updated.Spec.Finalizers, corev1.FinalizerKubernetes) {
			w.t.Fatal("the content was released, and no controller deletes it")
		}
	}
	if isSecured(w.namespace) && !isSecured(updated) && w.current() {
		w.t.Fatalf("the namespace was released while its lifecycle exists: %+v", w.lifecycle)
	}
	if !isSecured(w.namespace) && isSecured(updated) && w.namespace.DeletionTimestamp != nil {
		w.t.Fatal("the API server takes no new finalizer of a namespace that is being deleted")
	}
}

// checkConditions: a namespace is not Ready while it is closed, or once it is deleted. Only a report
// that the withdrawal of Ready fails leaves it.
func (w *world) checkConditions(updated *corev1.Namespace) {
	withdrawalFails := utilnamespaces.TrueCondition(updated.Status.Conditions, v1alpha1.ConditionFailing) != nil
	if isReady(updated) && (helper.IsClosed(updated) || updated.DeletionTimestamp != nil && !withdrawalFails) {
		w.t.Fatalf("the namespace is said to be Ready: %+v", updated)
	}
}

func isReady(namespace *corev1.Namespace) bool {
	return utilnamespaces.TrueCondition(namespace.Status.Conditions, v1alpha1.ConditionReady) != nil
}

// isFalselyReady says whether a namespace that is deleted is said to be Ready. A write could change that.
func isFalselyReady(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && !isReleased(namespace) && isReady(namespace)
}

// checkWithdrawn: nothing is done for a deleted namespace before it stops being Ready. One without
// finalizers cannot be written to. A lifecycle that was deleted first has separate steps.
func (w *world) checkWithdrawn(did string) {
	if w.current() && isFalselyReady(w.namespace) && !w.forced[w.lifecycle.UID] {
		w.t.Fatalf("%s while the namespace, which is deleted, is said to be Ready: %+v", did, w.namespace)
	}
}

// createLifecycle serves POST of a lifecycle. The server reads the namespace live.
func (w *world) createLifecycle(sent *v1alpha1.NamespaceLifecycle) (runtime.Object, error) {
	switch {
	case w.lifecycle != nil:
		return nil, apierrors.NewAlreadyExists(v1alpha1.Resource("namespacelifecycles"), worldName)
	case w.namespace == nil:
		return nil, notFound("namespaces")
	case w.namespace.UID != sent.Spec.NamespaceUID:
		return nil, apierrors.NewConflict(v1alpha1.Resource("namespacelifecycles"), worldName, errors.New("spec.namespaceUID is another"))
	case w.namespace.DeletionTimestamp != nil:
		err := apierrors.NewForbidden(v1alpha1.Resource("namespacelifecycles"), worldName, errors.New("the namespace is terminating"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return nil, err
	}
	lifecycle := sent.DeepCopy()
	lifecycle.UID, lifecycle.CreationTimestamp = w.nextUID(), *w.now()
	lifecycle.Spec.Finalizers = []v1alpha1.FinalizerName{v1alpha1.FinalizerKubernetes}
	if helper.IsClosed(w.namespace) {
		w.fill(lifecycle)
	}
	w.setLifecycle(lifecycle)
	return w.lifecycle.DeepCopy(), nil
}

// fill writes the plan into a new lifecycle, as nsinit-apiserver does.
func (w *world) fill(lifecycle *v1alpha1.NamespaceLifecycle) {
	for _, planned := range w.plan {
		if planned.Finalizer {
			lifecycle.Spec.Finalizers = append(lifecycle.Spec.Finalizers, v1alpha1.FinalizerName(planned.Name))
			if len(lifecycle.Spec.Plan) == 0 || lifecycle.Spec.Plan[0].Name != v1alpha1.InitializerLifecycle {
				lifecycle.Spec.Plan = slices.Insert(lifecycle.Spec.Plan, 0, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: v1alpha1.InitializerLifecycle}})
			}
		}
		lifecycle.Spec.Plan = append(lifecycle.Spec.Plan, planned)
	}
	for _, planned := range lifecycle.Spec.Plan {
		if lifecycle.Spec.Initializers == nil {
			lifecycle.Spec.Initializers = &v1alpha1.NamespaceInitializers{}
		}
		lifecycle.Spec.Initializers.Pending = append(lifecycle.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: planned.Name})
		lifecycle.Status.Initializers = append(lifecycle.Status.Initializers, v1alpha1.InitializerStatus{Name: planned.Name})
	}
	w.startTurns(lifecycle)
}

// updateLifecycle serves PUT of a lifecycle's subresources, by the controller.
func (w *world) updateLifecycle(sent *v1alpha1.NamespaceLifecycle, subresource string) (runtime.Object, error) {
	if w.lifecycle == nil {
		return nil, notFound("namespacelifecycles")
	}
	if err := locked("namespacelifecycles", sent, w.lifecycle); err != nil {
		return nil, err
	}
	updated := w.lifecycle.DeepCopy()
	switch subresource {
	case "initialize":
		w.checkInitialize(sent)
		updated.Spec.Initializers, updated.Spec.Skipped = sent.Spec.Initializers, sent.Spec.Skipped
		w.startTurns(updated)
	case "finalize":
		w.checkRelease(sent)
		updated.Spec.Finalizers = sent.Spec.Finalizers
	case "status":
		w.checkOpenedByHand(sent)
		updated.Status.Initializers, updated.Status.Conditions = sent.Status.Initializers, sent.Status.Conditions
	default:
		w.t.Fatalf("the controller wrote to %q of the lifecycle", subresource)
	}
	w.setLifecycle(updated)
	answer := w.lifecycle.DeepCopy()
	w.removeLifecycleIfReleased()
	return answer, nil
}

// checkInitialize: the controller removes the built-in initializer once its participants are
// secure, and others at their deadlines, or all of them after an administrator opened the namespace.
func (w *world) checkInitialize(sent *v1alpha1.NamespaceLifecycle) {
	after := helper.Pending(sent)
	gone := slices.DeleteFunc(helper.Pending(w.lifecycle), func(name string) bool { return slices.Contains(after, name) })
	fails := helper.Failure(sent) != nil && helper.Failure(w.lifecycle) == nil
	builtIn := slices.Contains(gone, v1alpha1.InitializerLifecycle)
	secured := !w.current() || w.forced[w.namespace.UID] ||
		!slices.ContainsFunc(finalizersFor(w.lifecycle), func(f string) bool { return !slices.Contains(w.namespace.Finalizers, f) })
	switch {
	case helper.Failure(w.lifecycle) != nil:
		w.t.Fatal("the controller went on with an initialization that has failed")
	case builtIn && !secured:
		w.t.Fatal("the built-in initializer was removed before the namespace had the finalizers that its plan needs")
	case w.open[w.lifecycle.Spec.NamespaceUID] && len(gone) > 0 && len(after) == 0 && reportsOpenedByHand(w.lifecycle):
		w.checkEnd(sent)
	case fails == (len(gone) > 0), len(gone)+len(after) != len(helper.Pending(w.lifecycle)):
		w.t.Fatalf("the controller changed the list from %v to %v", w.lifecycle.Spec.Initializers, sent.Spec.Initializers)
	case builtIn && len(gone) > 1:
		w.t.Fatalf("the controller removed %q together with the built-in initializer", gone)
	case builtIn:
	case fails:
		w.checkDeadline(sent.Spec.Initializers.FailedInitializer, v1alpha1.Fail)
	default:
		for _, name := range gone {
			w.checkDeadline(name, v1alpha1.Ignore)
		}
		if want := append(slices.Clone(w.lifecycle.Spec.Skipped), gone...); !slices.Equal(want, sent.Spec.Skipped) {
			w.t.Fatalf("the controller removed %q, and those skipped are %q", gone, sent.Spec.Skipped)
		}
	}
}

// checkDeadline: the initializer has its turn, and its failurePolicy takes effect at its own deadline. The time of outages does not
// count, and after an outage it has at least a minute, or its timeout.
func (w *world) checkDeadline(name string, policy v1alpha1.FailurePolicyType) {
	planned, start := helper.Planned(w.lifecycle, name), helper.TurnStart(w.lifecycle, name).Time
	timeout := time.Duration(ptr.Deref(planned.TimeoutSeconds, 0)) * time.Second
	end, deadline := start, start.Add(timeout)
	for _, o := range w.outages {
		if o.to.After(start) {
			end, deadline = o.to, deadline.Add(o.to.Sub(later(o.from, start)))
		}
	}
	switch {
	case !helper.IsActing(w.lifecycle, name):
		w.t.Fatalf("initializer %q does not have its turn: %q wait, and its deadline took effect", name, helper.Pending(w.lifecycle))
	case planned.FailurePolicy == nil || *planned.FailurePolicy != policy:
		w.t.Fatalf("failurePolicy %s of %+v took effect", policy, planned)
	case w.clock.Now().Before(deadline), w.clock.Since(end) < min(timeout, time.Minute):
		w.t.Fatalf("the deadline of %+v came early", planned)
	}
}

// checkEnd: each initializer that was pending when the controller ended the initialization is skipped, but for the
// built-in initializer, which has acted. The lifecycle names them.
func (w *world) checkEnd(sent *v1alpha1.NamespaceLifecycle) {
	want := slices.Clone(w.lifecycle.Spec.Skipped)
	said := meta.FindStatusCondition(w.lifecycle.Status.Conditions, v1alpha1.ConditionOpenedByHand).Message
	for _, entry := range pendingOf(w.lifecycle) {
		if entry.Name == v1alpha1.InitializerLifecycle {
			continue
		}
		want = append(want, entry.Name)
		if !strings.Contains(said, strconv.Quote(entry.Name)) {
			w.t.Fatalf("the lifecycle does not say that %s is skipped: %s", entry.Name, said)
		}
	}
	if !slices.Equal(want, sent.Spec.Skipped) {
		w.t.Fatalf("the initialization ended, and those skipped are %q, want %q", sent.Spec.Skipped, want)
	}
}

// checkOpenedByHand: only the lifecycle of a namespace that is open, and that the controller did not
// open, gets the condition, and keeps it. If an administrator deletes the lifecycle of a live namespace,
// the gate may open for the former lifecycle after the next one was created.
func (w *world) checkOpenedByHand(sent *v1alpha1.NamespaceLifecycle) {
	uid := w.lifecycle.Spec.NamespaceUID
	again := slices.ContainsFunc(w.lifecycles, func(r *v1alpha1.NamespaceLifecycle) bool {
		return r != nil && r.Spec.NamespaceUID == uid && r.UID != w.lifecycle.UID
	})
	switch was, is := reportsOpenedByHand(w.lifecycle), reportsOpenedByHand(sent); {
	case was && !is:
		w.t.Fatal("the lifecycle does not say any more that the namespace was opened by hand")
	case is && !was && (!w.open[uid] || w.opened[uid] > 0 && !again || len(helper.Pending(w.lifecycle)) == 0):
		w.t.Fatalf("the lifecycle says that the namespace was opened by hand: %+v", w.lifecycle)
	}
}

func reportsOpenedByHand(lifecycle *v1alpha1.NamespaceLifecycle) bool {
	return meta.IsStatusConditionTrue(lifecycle.Status.Conditions, v1alpha1.ConditionOpenedByHand)
}

// pendingOf returns who has to act yet.
func pendingOf(lifecycle *v1alpha1.NamespaceLifecycle) []v1alpha1.NamespaceInitializer {
	if lifecycle.Spec.Initializers == nil {
		return nil
	}
	return lifecycle.Spec.Initializers.Pending
}

// checkRelease: "kubernetes" leaves the lifecycle when the content of its namespace is gone, and
// no other finalizer is nsinit's to remove.
func (w *world) checkRelease(sent *v1alpha1.NamespaceLifecycle) {
	w.checkWithdrawn("the lifecycle was released")
	want := w.participants()
	if !slices.Equal(want, sent.Spec.Finalizers) {
		w.t.Fatalf("the controller changed spec.finalizers of the lifecycle from %q to %q", w.lifecycle.Spec.Finalizers, sent.Spec.Finalizers)
	}
	if w.current() && w.namespace.DeletionTimestamp != nil && !w.forced[w.lifecycle.UID] && slices.Contains(w.namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		w.t.Fatal("the lifecycle was released while its namespace had content")
	}
	if w.current() && isSecured(w.namespace) && w.namespace.DeletionTimestamp != nil && !w.forced[w.lifecycle.UID] && !w.emptied[w.namespace.UID] {
		w.t.Fatal("the lifecycle was released before the content of its namespace was deleted")
	}
}

// startTurns follows a change of the list, as the server does: the turns of the current initializers begin.
func (w *world) startTurns(lifecycle *v1alpha1.NamespaceLifecycle) {
	if len(pendingOf(lifecycle)) == 0 {
		lifecycle.Spec.Initializers = nil
		return
	}
	for _, name := range helper.CurrentInitializers(lifecycle) {
		if entry := helper.Entry(lifecycle, name); entry.StartTime == nil {
			entry.StartTime = &metav1.MicroTime{Time: w.clock.Now()}
		}
	}
}

// delete serves DELETE by the controller, which names what it means to delete.
func (w *world) delete(resource string, preconditions *metav1.Preconditions) error {
	var stored metav1.Object
	if resource == "namespaces" && w.namespace != nil {
		stored = w.namespace
	} else if resource == "namespacelifecycles" && w.lifecycle != nil {
		stored = w.lifecycle
	}
	switch {
	case stored == nil:
		return notFound(resource)
	case preconditions != nil && *preconditions.UID != stored.GetUID():
		return apierrors.NewConflict(v1alpha1.Resource(resource), worldName, errors.New("the UID is another"))
	case resource == "namespaces":
		if !w.failed[stored.GetUID()] {
			w.t.Fatalf("the controller deleted a namespace that did not fail: %+v", w.lifecycle)
		}
		w.deleteNamespace()
	default:
		if w.current() && w.namespace.DeletionTimestamp == nil && w.lifecycle.DeletionTimestamp == nil {
			w.t.Fatal("the controller deleted the lifecycle of a live namespace")
		}
		w.checkWithdrawn("the lifecycle was deleted")
		w.deleteLifecycle()
	}
	return nil
}

// deleteNamespace is what kube-apiserver does for a DELETE: the first one marks the namespace.
func (w *world) deleteNamespace() {
	if w.namespace.DeletionTimestamp != nil {
		w.removeIfReleased()
		return
	}
	w.change(func(n *corev1.Namespace) {
		n.DeletionTimestamp, n.Status.Phase = w.now(), corev1.NamespaceTerminating
	})
}

// deleteLifecycle is what nsinit-apiserver does for a DELETE.
func (w *world) deleteLifecycle() {
	if w.lifecycle.DeletionTimestamp != nil {
		w.removeLifecycleIfReleased()
		return
	}
	w.forced[w.lifecycle.UID] = w.current() && w.namespace.DeletionTimestamp == nil
	w.changeLifecycle(func(r *v1alpha1.NamespaceLifecycle) { r.DeletionTimestamp = w.now() })
}

func (w *world) removeLifecycleIfReleased() {
	if w.lifecycle.DeletionTimestamp != nil && len(w.lifecycle.Spec.Finalizers) == 0 {
		w.setLifecycle(nil)
	}
}
