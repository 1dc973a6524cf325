/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// setBy is a finalizer of the namespace that a field manager set, with its last write.
func setBy(manager string, written time.Duration) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) {
		n.Finalizers = []string{"billing.example.com/invoices"}
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Time: ago(written), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"billing.example.com/invoices\"":{}}}}`)}}
	}
}

func deployment(namespace, name string, desired, ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:   appsv1.DeploymentSpec{Replicas: &desired, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{ServiceAccountName: "server", Containers: []corev1.Container{{Name: "main", Image: "registry/" + name + ":v1@sha256:0"}}}}},
		Status: appsv1.DeploymentStatus{Replicas: desired, ReadyReplicas: ready}}
}

// writtenBy sets the field manager of a Lease.
func writtenBy(manager string, l *coordinationv1.Lease) *coordinationv1.Lease {
	l.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager}}
	return l
}

func pod(namespace, name string, phase corev1.PodPhase, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{ServiceAccountName: "server"},
		Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
}

// TestFinalizerEvidence: what shows that the controller of a finalizer runs or does not run. Dead needs certainty.
func TestFinalizerEvidence(t *testing.T) {
	const hour = time.Hour
	lapsed := writtenBy("billing", lease("billing", "leader", "billing-0_uuid", hour))
	stopped := deployment("billing", "billing", 0, 0)
	for name, test := range map[string]struct {
		manager string
		written time.Duration
		core    []runtime.Object
		refuses func(verb, resource, name string) error
		want    Liveness
		says    string
		// first is the beginning of the first remedy.
		first string
	}{
		"nothing is found":                     {"billing", hour, nil, nil, Unknown, `field manager "billing" set the finalizer`, "read the namespace"},
		"no manager":                           {"", hour, nil, nil, Unknown, "no API group of billing.example.com is served", "read the namespace"},
		"a name of many programs":              {"manager", hour, []runtime.Object{deployment("x", "manager", 0, 0), lease("x", "manager", "m-0", hour)}, nil, Unknown, "does not identify", ""},
		"a client of people":                   {"kubectl-edit", time.Minute, nil, nil, Unknown, "does not identify", ""},
		"it wrote after the deletion":          {"billing", time.Minute, nil, nil, Alive, "after the deletion", "read the log"},
		"it wrote long after the deletion":     {"billing", 6 * time.Minute, nil, nil, Unknown, "last wrote", ""},
		"its Lease is renewed":                 {"billing", hour, []runtime.Object{writtenBy("billing", lease("x", "y", "billing-0", time.Second))}, nil, Alive, "billing-0 renews it", ""},
		"the Lease of its name is renewed":     {"billing", hour, []runtime.Object{lease("x", "billing", "b-0", time.Second)}, nil, Alive, "Lease x/billing", ""},
		"another Lease is renewed":             {"billing", hour, []runtime.Object{lease("x", "quota", "q-0", time.Second)}, nil, Unknown, "", ""},
		"a Lease expired just now":             {"billing", hour, []runtime.Object{writtenBy("billing", lease("billing", "leader", "billing-0_uuid", time.Minute))}, nil, Unknown, "too short", ""},
		"a Lease expired, without its pod":     {"billing", hour, []runtime.Object{lapsed}, nil, Dead, "does not exist any more", "reinstall the controller"},
		"a Lease expired, and its pod ended":   {"billing", hour, []runtime.Object{lapsed, pod("billing", "billing-0", corev1.PodFailed, corev1.ConditionFalse)}, nil, Dead, "has ended", ""},
		"a Lease expired, and its pod runs":    {"billing", hour, []runtime.Object{lapsed, pod("billing", "billing-0", corev1.PodRunning, corev1.ConditionTrue)}, nil, Unknown, "exists: Running", ""},
		"a Lease expired, and pods are secret": {"billing", hour, []runtime.Object{lapsed}, refuseOnly("get", "pods", forbidden("no")), Unknown, "Pod billing/billing-0: not checked: no", ""},
		"a released Lease alone":               {"billing", hour, []runtime.Object{lease("x", "billing", "", hour)}, nil, Unknown, "has no holder", ""},
		"a similar Lease is renewed":           {"billing", hour, []runtime.Object{lapsed, lease("x", "billing-2", "b-0", time.Second)}, nil, Unknown, "could be the controller", ""},
		"its Deployment has no replicas":       {"billing", hour, []runtime.Object{stopped}, nil, Dead, "Deployment billing/billing: has no replicas and no pods", "scale the controller up"},
		"its Deployment has pods":              {"billing", hour, []runtime.Object{deployment("billing", "billing", 1, 1)}, nil, Alive, "1 of 1 pods are ready", "read the log"},
		"its Deployment is not ready":          {"billing", hour, []runtime.Object{lapsed, deployment("billing", "billing", 1, 0)}, nil, Unknown, "0 of 1 pods are ready", ""},
		"one of two workloads has pods":        {"billing", hour, []runtime.Object{stopped, deployment("other", "billing", 1, 1)}, nil, Alive, "Deployment other/billing", ""},
		"a similar Deployment has pods":        {"billing", hour, []runtime.Object{stopped, deployment("other", "invoices-operator", 1, 1)}, nil, Unknown, "Deployment other/invoices-operator: 1 of 1 pods are ready, which could be", ""},
		"Leases are secret":                    {"billing", hour, []runtime.Object{stopped}, refuseOnly("list", "leases", forbidden("no")), Unknown, "Leases: not checked: no", ""},
		"Deployments are secret":               {"billing", hour, []runtime.Object{lapsed}, refuseOnly("list", "daemonsets", forbidden("no")), Unknown, "DaemonSets: not checked: no", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{namespace: terminating(setBy(test.manager, test.written)), refuses: test.refuses,
				core: append(slices.Clone(test.core), lease("kube-system", "kube-controller-manager", "cp-1", time.Second))}
			found, err := w.diagnose(t)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(found.Findings, func(f Finding) bool { return f.Cause == NamespaceFinalizer })
			f := found.Findings[i]
			var said []string
			for _, e := range f.Controller.Evidence {
				said = append(said, e.Source+": "+e.Message)
			}
			if f.Controller.State != test.want || !strings.Contains(strings.Join(said, "\n"), test.says) {
				t.Errorf("%s:\n%s", f.Controller.State, strings.Join(said, "\n"))
			}
			last := f.Remedies[len(f.Remedies)-1]
			if !strings.HasPrefix(f.Remedies[0].Description, test.first) || (last.Risk == "") != (test.want == Alive) {
				t.Errorf("the remedies are %+v", f.Remedies)
			}
		})
	}
}

// TestActorEvidence: what shows that the program of a participant or an initializer runs.
func TestActorEvidence(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "quota", Name: "server"}}
	for name, test := range map[string]struct {
		core    []runtime.Object
		refuses func(verb, resource, name string) error
		// reported is the age of the last report, if there is one.
		reported time.Duration
		want     Liveness
		says     string
	}{
		"its account does not exist":      {nil, nil, 0, Dead, "does not exist any more, so no program can authenticate as it"},
		"its account is secret":           {nil, refuseOnly("get", "serviceaccounts", forbidden("no")), 0, Unknown, "not checked: no"},
		"its pods are secret":             {[]runtime.Object{account}, refuseOnly("list", "pods", forbidden("no")), 0, Unknown, "Pods of ServiceAccount quota/server: not checked: no"},
		"it has no pods":                  {[]runtime.Object{account}, nil, 0, Unknown, "no such pods"},
		"it has a pod":                    {[]runtime.Object{account, pod("quota", "p", corev1.PodRunning, corev1.ConditionTrue)}, nil, 0, Alive, "1, of which 1 are ready"},
		"its pod is not ready":            {[]runtime.Object{account, pod("quota", "p", corev1.PodRunning, corev1.ConditionFalse)}, nil, time.Hour, Unknown, "1, of which 0 are ready"},
		"its Deployment has no replicas":  {[]runtime.Object{account, deployment("quota", "x", 0, 0)}, nil, 0, Dead, "has no replicas and no pods"},
		"a Deployment elsewhere":          {[]runtime.Object{account, deployment("elsewhere", "x", 0, 0)}, nil, 0, Unknown, "no such pods"},
		"it reports":                      {[]runtime.Object{account}, nil, time.Second, Alive, "last reported at"},
		"its report is old, without pods": {[]runtime.Object{account}, nil, time.Hour, Dead, "the report is overdue"},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{namespace: terminating(lifecycleHeld), apis: []runtime.Object{nsinitAPI("True")}, refuses: test.refuses,
				core: append(test.core, lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second))}
			r := lifecycle(deleting)
			w.lifecycles = []runtime.Object{r}
			if test.reported != 0 {
				r.Spec.Plan[0].Configuration = &v1alpha1.ConfigurationReference{Name: "c", UID: "c"}
				w.lifecycles = append(w.lifecycles, &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"},
					Initializers: []v1alpha1.RegisteredInitializer{{Name: "a.example.com"}},
					Status: v1alpha1.NamespaceInitializerConfigurationStatus{Initializers: []v1alpha1.RegisteredInitializerStatus{{
						Name: "a.example.com", Reporter: "system:serviceaccount:quota:server", ReportTime: &metav1.MicroTime{Time: now().Add(-test.reported)}}}}})
			}
			found, err := w.diagnose(t)
			if err != nil {
				t.Fatal(err)
			}
			f := found.Findings[0]
			var said []string
			for _, e := range f.Controller.Evidence {
				said = append(said, e.Source+": "+e.Message)
			}
			if f.Controller.State != test.want || !strings.Contains(strings.Join(said, "\n"), test.says) {
				t.Errorf("%s: %s: %+v", f.Cause, f.Controller.State, f.Controller.Evidence)
			}
		})
	}
}

// TestKubernetesFinalizer: the Lease of kube-controller-manager shows whether it removes a finalizer of Kubernetes.
func TestKubernetesFinalizer(t *testing.T) {
	for age, want := range map[time.Duration]Liveness{time.Second: Alive, time.Hour: Unknown} {
		w := world{namespace: terminating(), content: []runtime.Object{object("Pod", "p", deleted(time.Minute, "foregroundDeletion"))}, core: []runtime.Object{lease("kube-system", "kube-controller-manager", "cp-1", age)}}
		found, err := w.diagnose(t)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(found.Findings, func(f Finding) bool { return f.Cause == ContentFinalizer })
		if c := found.Findings[i].Controller; c.State != want || len(c.Evidence) != 1 {
			t.Errorf("%s: %+v", age, c)
		}
	}
}
