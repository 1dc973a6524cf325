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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// setBy is a finalizer of the namespace that a field manager set, long before it was deleted.
func setBy(manager string) func(*corev1.Namespace) { return writtenBy(manager, time.Hour) }

// writtenBy is a finalizer of the namespace that a field manager set, with its last write.
func writtenBy(manager string, written time.Duration) func(*corev1.Namespace) {
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

// checkController checks what is known of the controller of a finding. It returns its remedies.
func checkController(t *testing.T, f Finding, want Liveness, says string) []Remedy {
	t.Helper()
	var said []string
	for _, e := range f.Controller.Evidence {
		said = append(said, e.Source+": "+e.Message)
	}
	if f.Controller.State != want || !strings.Contains(strings.Join(said, "\n"), says) {
		t.Errorf("%s: %s:\n%s", f.Cause, f.Controller.State, strings.Join(said, "\n"))
	}
	return f.Remedies
}

// TestFinalizerController: what shows that the controller of a finalizer runs or does not run. Dead needs certainty.
func TestFinalizerController(t *testing.T) {
	gone := deployment("billing", "billing", 0, 0)
	of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: "p"}, Spec: corev1.PodSpec{ServiceAccountName: "server"}}
	for name, test := range map[string]struct {
		manager string
		core    []runtime.Object
		refuses func(verb, resource, name string) error
		want    Liveness
		says    string
		// first is the beginning of the first remedy.
		first string
	}{
		"nothing is found":                  {"billing", nil, nil, Unknown, `field manager "billing" set the finalizer`, "read the namespace"},
		"no manager":                        {"", nil, nil, Unknown, "", "read the namespace"},
		"a name of many programs":           {"manager", []runtime.Object{deployment("x", "manager", 0, 0)}, nil, Unknown, "does not identify", ""},
		"a client library":                  {"fabric8-kubernetes-client", []runtime.Object{deployment("x", "fabric8-kubernetes-client", 1, 1)}, nil, Unknown, "does not identify", ""},
		"its Deployment has no replicas":    {"billing", []runtime.Object{gone}, nil, Dead, "Deployment billing/billing: has no replicas and no pods, and its service account may remove the finalizer", "scale the controller up"},
		"its DaemonSet has no pods":         {"billing", []runtime.Object{&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "billing"}}}, nil, Dead, "DaemonSet x/billing: has no replicas", "read the namespace"},
		"a tenant's Deployment of its name": {"billing", []runtime.Object{deployment("tenant", "billing", 0, 0)}, nil, Unknown, "but is not the controller: its service account may not remove the finalizer", "read the namespace"},
		"pods run without its Deployment":   {"billing", []runtime.Object{gone, of}, nil, Unknown, "has no replicas and no pods; other pods of its service account: pod p uses it", ""},
		"its Deployment has pods":           {"billing", []runtime.Object{deployment("billing", "billing", 1, 1)}, nil, Alive, "1 of 1 pods are ready", "read the log"},
		"its Deployment is not ready":       {"billing", []runtime.Object{gone, deployment("x", "billing", 1, 0)}, nil, Unknown, "0 of 1 pods are ready", ""},
		"one of two workloads has pods":     {"billing", []runtime.Object{gone, deployment("other", "billing", 1, 1)}, nil, Alive, "Deployment other/billing", ""},
		"a similar Deployment is not ready": {"billing", []runtime.Object{gone, deployment("other", "billing-operator", 1, 0)}, nil, Unknown, "Deployment other/billing-operator: 0 of 1 pods are ready, which could be", ""},
		"a similar Deployment is stopped":   {"billing", []runtime.Object{gone, deployment("other", "billing-operator", 0, 0)}, nil, Dead, "", ""},
		"another Deployment":                {"billing", []runtime.Object{gone, deployment("other", "quota", 1, 1)}, nil, Dead, "", ""},
		"Deployments are secret":            {"billing", []runtime.Object{gone}, refuseOnly("list", "daemonsets", forbidden("no")), Unknown, "DaemonSets: not checked: no", ""},
		"pods are secret":                   {"billing", []runtime.Object{gone}, refuseOnly("list", "pods", forbidden("no")), Unknown, "other pods of its service account: not checked: no", ""},
		"permissions are secret":            {"billing", []runtime.Object{gone}, refuseOnly("create", "subjectaccessreviews", forbidden("no")), Unknown, "was not checked: no", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := world{namespace: terminating(setBy(test.manager)), refuses: test.refuses,
				core: append(slices.Clone(test.core), lease("kube-system", "kube-controller-manager", "cp-1", time.Second))}.diagnose(t)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(found.Findings, func(f Finding) bool { return f.Cause == NamespaceFinalizer })
			remedies := checkController(t, found.Findings[i], test.want, test.says)
			if last := remedies[len(remedies)-1]; !strings.HasPrefix(remedies[0].Description, test.first) || (last.Risk == "") != (test.want == Alive) {
				t.Errorf("the remedies are %+v", remedies)
			}
		})
	}
}

// TestWriteAfterDeletion: a controller that has written the object since its deletion runs, also if its Deployment is stopped.
func TestWriteAfterDeletion(t *testing.T) {
	for written, want := range map[time.Duration]Liveness{time.Minute: Alive, 6 * time.Minute: Dead, time.Hour: Dead} {
		d := world{namespace: terminating(writtenBy("billing", written)), core: []runtime.Object{deployment("billing", "billing", 0, 0), lease("kube-system", "kube-controller-manager", "cp-1", time.Second)}}.diagnoser(t)
		d.Progress = nil
		found, err := d.Diagnose(t.Context(), "ns")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(found.Findings, func(f Finding) bool { return f.Cause == NamespaceFinalizer })
		checkController(t, found.Findings[i], want, `field manager "billing" set the finalizer`)
	}
}

// overdue is a configuration that registers an initializer, whose program last reported a while ago.
func overdue(initializer string, reported time.Duration) *v1alpha1.NamespaceInitializerConfiguration {
	served := metav1.ConditionTrue
	if reported > timing.ReportOverdue {
		served = metav1.ConditionFalse
	}
	return &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"},
		Initializers: []v1alpha1.RegisteredInitializer{{Name: initializer}},
		Status: v1alpha1.NamespaceInitializerConfigurationStatus{Initializers: []v1alpha1.RegisteredInitializerStatus{{
			Name: initializer, Reporter: "system:serviceaccount:quota:server", ReportTime: &metav1.MicroTime{Time: now().Add(-reported)},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: served}}}}}}
}

// TestTenantsDeployment: a Deployment that is not the controller is not the one to start, wherever it is in the list.
func TestTenantsDeployment(t *testing.T) {
	core := fake.NewClientset()
	core.PrependReactor("create", "subjectaccessreviews", mayUpdate)
	r := &round{Diagnoser: Diagnoser{Clients: Clients{Core: core}}, workloads: func() (all Answer[[]workload]) {
		for _, name := range []string{"tenant/a", "billing/server", "tenant/b"} {
			namespace, _, _ := strings.Cut(name, "/")
			all.Object = append(all.Object, workload{kind: "Deployment", namespace: namespace, name: "billing", names: []string{"billing"}, account: name})
		}
		return all
	}}
	o := Observation{Installation: bare(), Programs: map[actor]program{}}
	a := actor{finalizer: "a/b", manager: "billing"}
	o.Programs[a] = r.readProgram(t.Context(), a, func(string) Evidence { return Evidence{} })
	if c, w := o.controller(a); c.State != Dead || len(c.Evidence) != 4 || w == nil || w.namespace != "billing" {
		t.Errorf("%+v of %+v", c, w)
	}
}

// TestInitializerController: what shows that the program of a participant or an initializer runs. Without a report, no program is
// dead: another one can act under another account.
func TestInitializerController(t *testing.T) {
	moved := func(r *v1alpha1.NamespaceLifecycle) {
		r.Status.Initializers[0].LastActor = "system:serviceaccount:new:server"
	}
	person := func(r *v1alpha1.NamespaceLifecycle) { r.Status.Initializers[0].LastActor = "jane" }
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "quota", Name: "p"}, Spec: corev1.PodSpec{ServiceAccountName: "server"}}
	unnamed := deployment("tenant", "x", 1, 0)
	unnamed.Spec.Template.Spec.Containers[0].Image = ":v1"
	for name, test := range map[string]struct {
		core    []runtime.Object
		refuses func(verb, resource, name string) error
		// reported is the age of the last report, if there is one. With a negative one, the initializer is registered.
		reported time.Duration
		change   func(*v1alpha1.NamespaceLifecycle)
		want     Liveness
		says     string
	}{
		"nothing is found":                  {nil, nil, 0, nil, Unknown, "Pods of ServiceAccount quota/server: no such pods"},
		"a pod uses its account":            {[]runtime.Object{pod}, nil, time.Hour, nil, Unknown, "Pods of ServiceAccount quota/server: pod p uses it"},
		"pods are secret":                   {nil, refuseOnly("list", "pods", forbidden("no")), time.Hour, nil, Unknown, "Pods of ServiceAccount quota/server: not checked: no"},
		"a Deployment without a name":       {[]runtime.Object{unnamed}, nil, time.Hour, nil, Dead, ""},
		"its Deployment has no replicas":    {[]runtime.Object{deployment("quota", "x", 0, 0)}, nil, 0, nil, Unknown, "has no replicas and no pods"},
		"it has a pod":                      {[]runtime.Object{deployment("quota", "x", 1, 1)}, nil, 0, nil, Alive, "1 of 1 pods are ready"},
		"it never reported, and has a pod":  {[]runtime.Object{deployment("quota", "x", 1, 1)}, nil, -1, nil, Alive, "Deployment quota/x: 1 of 1 pods are ready"},
		"it reports":                        {nil, nil, time.Second, nil, Alive, "last reported at"},
		"its report is old":                 {nil, nil, time.Hour, nil, Dead, "the report is overdue"},
		"and its Deployment is stopped":     {[]runtime.Object{deployment("quota", "x", 0, 0)}, nil, time.Hour, nil, Dead, "has no replicas and no pods"},
		"and its Deployment has no pods":    {[]runtime.Object{deployment("quota", "x", 1, 0)}, nil, time.Hour, nil, Unknown, "0 of 1 pods are ready"},
		"and its pod is ready":              {[]runtime.Object{deployment("quota", "x", 1, 1)}, nil, time.Hour, nil, Alive, "1 of 1 pods are ready"},
		"a Deployment elsewhere":            {[]runtime.Object{deployment("elsewhere", "x", 1, 0)}, nil, time.Hour, nil, Dead, ""},
		"Deployments are secret":            {nil, refuseOnly("list", "deployments", forbidden("no")), time.Hour, nil, Unknown, "Deployments, StatefulSets and DaemonSets: not checked: no"},
		"it acts under another account now": {[]runtime.Object{deployment("new", "x", 1, 1)}, nil, time.Hour, moved, Alive, "Deployment new/x: 1 of 1 pods are ready"},
		"a person acts":                     {nil, nil, time.Hour, person, Unknown, `"jane" acted last, which is no service account`},
	} {
		t.Run(name, func(t *testing.T) {
			changes := []func(*v1alpha1.NamespaceLifecycle){deleting}
			if test.change != nil {
				changes = append(changes, test.change)
			}
			r := lifecycle(changes...)
			w := world{namespace: terminating(lifecycleHeld), apis: []runtime.Object{nsinitAPI("True")}, refuses: test.refuses, lifecycles: []runtime.Object{r},
				core: append(test.core, lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second))}
			if registered := overdue(r.Status.Initializers[0].Name, test.reported); test.reported != 0 {
				if test.reported < 0 {
					registered.Status.Initializers = nil
				}
				w.lifecycles = append(w.lifecycles, registered)
			}
			found, err := w.diagnose(t)
			if err != nil {
				t.Fatal(err)
			}
			remedies := checkController(t, found.Findings[0], test.want, test.says)
			if offered := slices.ContainsFunc(remedies, func(r Remedy) bool { return strings.HasPrefix(r.Command, "kubectl nsinit finalize ") }); offered == (test.want == Alive) {
				t.Errorf("the remedies are %+v", remedies)
			}
		})
	}
}

// TestKubernetesFinalizer: no remedy removes a finalizer of Kubernetes, also if a stopped Deployment has the name of its field manager.
func TestKubernetesFinalizer(t *testing.T) {
	for _, finalizer := range []string{"foregroundDeletion", "kubernetes.io/pvc-protection", "resource.kubernetes.io/delete-protection", "customresourcecleanup.apiextensions.k8s.io"} {
		d := world{namespace: terminating(), content: []runtime.Object{object("Pod", "p", deleted(time.Minute, finalizer), func(m *metav1.ObjectMeta) {
			m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "billing", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"` + finalizer + `\"":{}}}}`)}}
		})}, core: []runtime.Object{lease("kube-system", "kube-controller-manager", "cp-1", time.Second), deployment("x", "billing", 0, 0)}}.diagnoser(t)
		d.Progress = nil
		found, err := d.Diagnose(t.Context(), "ns")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(found.Findings, func(f Finding) bool { return f.Cause == ContentFinalizer })
		if f := found.Findings[i]; f.Controller != nil || slices.ContainsFunc(f.Remedies, func(r Remedy) bool { return r.Risk != "" }) || len(found.Fixable) > 0 {
			t.Errorf("%s: %+v, remedies %+v, fixes for %v", finalizer, f.Controller, f.Remedies, found.Fixable)
		}
	}
}

// TestUserIsNoProgram: a workload with the name of a user, or of a generic field manager, is not the program of it.
func TestUserIsNoProgram(t *testing.T) {
	for _, name := range []string{"carol", "kubectl"} {
		w := workload{names: []string{name}, account: "tenant/default"}
		if a := (actor{user: "carol", manager: "kubectl"}); w.isOf(a) || w.isLike(a) {
			t.Errorf("a workload %s is the program of %+v", name, a)
		}
	}
	w := workload{names: []string{"engine"}, account: "tenant/default"}
	if !w.isOf(actor{manager: "engine"}) {
		t.Error("a workload with the name of a program is not its own")
	}
}
