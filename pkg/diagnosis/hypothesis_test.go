/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestIfDeleted: what would block or delay the deletion of a namespace that is open.
func TestIfDeleted(t *testing.T) {
	finalizers := func(names ...string) func(*metav1.ObjectMeta) {
		return func(m *metav1.ObjectMeta) { m.Finalizers = names }
	}
	leases := []runtime.Object{lease("kube-system", "kube-controller-manager", "cp-1", time.Second), lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second)}
	leases = slices.Clip(leases) // tests append to it
	hour := int64(3600)
	held := func(n *corev1.Namespace) { n.Finalizers = []string{v1alpha1.NamespaceFinalizer} }
	present := func(r *v1alpha1.NamespaceLifecycle) {
		deleting(r)
		r.DeletionTimestamp, r.Spec.Initializers = nil, nil
	}
	for name, test := range map[string]struct {
		world
		want []string
		says string
	}{
		"nothing":                      {world{namespace: terminating(closed, open), core: leases, content: []runtime.Object{object("ConfigMap", "a")}}, nil, ""},
		"it is deleted":                {world{namespace: terminating(young), core: leases}, []string{"Waiting NamespaceControllerAtWork"}, ""},
		"an unavailable API":           {world{namespace: terminating(closed, open), core: leases, apis: []runtime.Object{apiService("a.example.com", "v1")}}, []string{"Stuck APIUnavailable"}, "removes no namespace"},
		"a finalizer":                  {world{namespace: terminating(closed, open, setBy("billing")), core: leases}, []string{"Waiting NamespaceFinalizer"}, "which its controller would have to remove"},
		"a finalizer, dead controller": {world{namespace: terminating(closed, open, setBy("billing")), core: append(leases, deployment("x", "billing", 0, 0))}, []string{"Stuck NamespaceFinalizer"}, ""},
		"an object with a finalizer":   {world{namespace: terminating(closed, open), core: leases, content: []runtime.Object{object("ConfigMap", "a", finalizers("a/b"))}}, []string{"Waiting ContentFinalizer"}, `configmaps/a has the finalizer "a/b", which its controller would have to remove`},
		"an object that is stuck":      {world{namespace: terminating(closed, open), core: leases, content: []runtime.Object{object("ConfigMap", "a", deleted(time.Hour, "a/b"))}}, []string{"Stuck ContentFinalizer"}, ""},
		"a claim":                      {world{namespace: terminating(closed, open), core: leases, content: []runtime.Object{object("PersistentVolumeClaim", "a", finalizers("kubernetes.io/pvc-protection"))}}, []string{"Waiting ContentFinalizer"}, "kube-controller-manager when no pod uses the claim"},
		"a participant":                {world{namespace: terminating(closed, open, held), core: leases, apis: []runtime.Object{nsinitAPI("True")}, lifecycles: []runtime.Object{lifecycle(present)}}, []string{"Waiting ParticipantPending"}, `participant "a.example.com" would have to clean up`},
		"nsinit is down": {world{namespace: terminating(closed, open, held), core: leases[:1:1], apis: []runtime.Object{nsinitAPI("True")}, lifecycles: []runtime.Object{lifecycle(present)}},
			[]string{"Stuck NsinitControllerDown", "Waiting ParticipantPending"}, ""},
		"a webhook":       {world{namespace: terminating(closed, open), core: leases, content: []runtime.Object{object("ConfigMap", "a")}, refuses: refuseOnly("delete", "configmaps", apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "w": service "x" not found`)))}, []string{"Stuck WebhookUnavailable"}, `service "x" not found`},
		"protected":       {world{namespace: terminating(closed), core: leases, refuses: refuseOnly("delete", "namespaces", forbidden("protected"))}, []string{"Stuck DeletionProtected"}, ""},
		"no permission":   {world{namespace: terminating(closed, open), core: leases, refuses: refuseOnly("delete", "namespaces", forbidden(`User "jane" cannot delete resource "namespaces"`))}, []string{"NotExamined whether the namespace can be deleted"}, ""},
		"no dry run":      {world{namespace: terminating(closed, open), core: leases, refuses: refuseOnly("delete", "namespaces", apierrors.NewBadRequest(`admission webhook "keep.example.com" does not support dry run`))}, []string{"NotExamined whether the namespace can be deleted"}, ""},
		"no controller":   {world{namespace: terminating(closed, open), core: []runtime.Object{lease("kube-system", "kube-controller-manager", "cp-1", time.Hour)}}, []string{"Stuck NamespaceControllerSilent"}, ""},
		"a patient pod":   {world{namespace: terminating(closed, open), content: []runtime.Object{object("Pod", "p")}, core: append(leases, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &hour}})}, []string{"Waiting GracePeriod"}, "may take up to 1h0m0s to end"},
		"an emptied spec": {world{namespace: terminating(closed, open, func(n *corev1.Namespace) { n.Spec.Finalizers = nil }), core: leases}, []string{"Stuck FinalizersEmptied"}, "second DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := test.diagnoser(t).DiagnoseDeletion(t.Context(), "ns")
			if err != nil {
				t.Fatal(err)
			}
			var got, said []string
			for _, f := range found.Findings {
				got, said = append(got, fmt.Sprintf("%s %s", f.State, f.Cause)), append(said, f.Message)
			}
			for _, what := range found.NotExamined {
				what, _, _ = strings.Cut(what, ":")
				got = append(got, "NotExamined "+what)
			}
			if diff := cmp.Diff(test.want, got); diff != "" || !strings.Contains(strings.Join(said, "\n"), test.says) || found.IfDeleted != (name != "it is deleted") {
				t.Errorf("(-want +got):\n%s%s", diff, strings.Join(said, "\n"))
			}
		})
	}
	if _, err := (world{}).diagnoser(t).DiagnoseDeletion(t.Context(), "ns"); !apierrors.IsNotFound(err) {
		t.Errorf("without a namespace: %v", err)
	}
}
