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
	gone := deployment("billing", "billing", 0, 0)
	var many []runtime.Object
	for i := range accountsRead {
		many = append(many, deployment(fmt.Sprintf("x-%d", i), "billing", 0, 0))
	}
	for name, test := range map[string]struct {
		manager string
		written time.Duration
		core    []runtime.Object
		pods    []string
		refuses func(verb, resource, name string) error
		want    Liveness
		says    string
		// first is the beginning of the first remedy.
		first string
	}{
		"nothing is found":                    {"billing", hour, nil, nil, nil, Unknown, `field manager "billing" set the finalizer`, "read the namespace"},
		"no manager":                          {"", hour, nil, nil, nil, Unknown, "no API group of billing.example.com is served", "read the namespace"},
		"a name of many programs":             {"manager", hour, []runtime.Object{deployment("x", "manager", 0, 0), lease("x", "manager", "m-0", hour)}, nil, nil, Unknown, "does not identify", ""},
		"a client library":                    {"fabric8-kubernetes-client", hour, []runtime.Object{deployment("x", "fabric8-kubernetes-client", 0, 0)}, nil, nil, Unknown, "does not identify", ""},
		"a client of people":                  {"kubectl-edit", time.Minute, nil, nil, nil, Unknown, "does not identify", ""},
		"it wrote after the deletion":         {"billing", time.Minute, nil, nil, nil, Alive, "after the deletion", "read the log"},
		"it wrote long after the deletion":    {"billing", 6 * time.Minute, nil, nil, nil, Unknown, "last wrote", ""},
		"its Lease is renewed":                {"billing", hour, []runtime.Object{writtenBy("billing", lease("x", "y", "billing-0", time.Second))}, nil, nil, Alive, "billing-0 renews it", ""},
		"the Lease of its name is renewed":    {"billing", hour, []runtime.Object{lease("x", "billing", "b-0", time.Second)}, nil, nil, Alive, "Lease x/billing", ""},
		"another Lease is renewed":            {"billing", hour, []runtime.Object{lease("x", "quota", "q-0", time.Second)}, nil, nil, Unknown, "", ""},
		"a Lease expired":                     {"billing", hour, []runtime.Object{lapsed}, nil, nil, Unknown, "billing-0_uuid has not renewed Lease billing/leader", "read the namespace"},
		"a released Lease":                    {"billing", hour, []runtime.Object{lease("x", "billing", "", hour)}, nil, nil, Unknown, "has no holder", ""},
		"a similar Lease is renewed":          {"billing", hour, []runtime.Object{gone, lease("x", "billing-2", "b-0", time.Second)}, nil, nil, Unknown, "could be the controller", ""},
		"its Deployment has no replicas":      {"billing", hour, []runtime.Object{gone}, nil, nil, Dead, "Deployment billing/billing: has no replicas and no pods, and its service account may remove the finalizer", "scale the controller up"},
		"its DaemonSet has no pods":           {"billing", hour, []runtime.Object{&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "billing"}}}, nil, nil, Dead, "DaemonSet x/billing: has no replicas", "read the namespace"},
		"a tenant's Deployment of its name":   {"billing", hour, []runtime.Object{deployment("tenant", "billing", 0, 0)}, nil, nil, Unknown, "but is not the controller: its service account may not remove the finalizer", "read the namespace"},
		"its pods run without its Deployment": {"billing", hour, []runtime.Object{gone, pod("billing", "p", corev1.PodRunning, corev1.ConditionTrue)}, nil, nil, Alive, "Pods of ServiceAccount billing/server: 1, of which 1 are ready", ""},
		"such a pod is not ready":             {"billing", hour, []runtime.Object{gone, pod("billing", "p", corev1.PodPending, corev1.ConditionFalse)}, nil, nil, Unknown, "1, of which 0 are ready", ""},
		"a pod has a similar name":            {"billing", hour, []runtime.Object{gone}, []string{"new-billing-0"}, nil, Unknown, "Pod elsewhere/new-billing-0: exists, which could be the controller", ""},
		"a pod has its name":                  {"billing", hour, []runtime.Object{gone}, []string{"billing"}, nil, Unknown, "Pod elsewhere/billing: exists", ""},
		"another pod":                         {"billing", hour, []runtime.Object{gone}, []string{"web-0"}, nil, Dead, "", ""},
		"its Deployment has pods":             {"billing", hour, []runtime.Object{deployment("billing", "billing", 1, 1)}, nil, nil, Alive, "1 of 1 pods are ready", "read the log"},
		"its Deployment is not ready":         {"billing", hour, []runtime.Object{gone, deployment("x", "billing", 1, 0)}, nil, nil, Unknown, "0 of 1 pods are ready", ""},
		"one of two workloads has pods":       {"billing", hour, []runtime.Object{gone, deployment("other", "billing", 1, 1)}, nil, nil, Alive, "Deployment other/billing", ""},
		"a similar Deployment has pods":       {"billing", hour, []runtime.Object{gone, deployment("other", "invoices-operator", 1, 1)}, nil, nil, Unknown, "Deployment other/invoices-operator: 1 of 1 pods are ready, which could be", ""},
		"a similar Deployment is not ready":   {"billing", hour, []runtime.Object{gone, deployment("other", "billing-operator", 1, 0)}, nil, nil, Unknown, "Deployment other/billing-operator: 0 of 1 pods are ready, which could be", ""},
		"a similar Deployment is stopped":     {"billing", hour, []runtime.Object{gone, deployment("other", "billing-operator", 0, 0)}, nil, nil, Dead, "", ""},
		"Leases are secret":                   {"billing", hour, []runtime.Object{gone}, nil, refuseOnly("list", "leases", forbidden("no")), Unknown, "Leases: not checked: no", ""},
		"Deployments are secret":              {"billing", hour, []runtime.Object{gone}, nil, refuseOnly("list", "daemonsets", forbidden("no")), Unknown, "DaemonSets: not checked: no", ""},
		"pods are secret":                     {"billing", hour, []runtime.Object{gone}, nil, refuseOnly("list", "pods", forbidden("no")), Unknown, "Pods of ServiceAccount billing/server: not checked: no", ""},
		"permissions are secret":              {"billing", hour, []runtime.Object{gone}, nil, refuseOnly("create", "subjectaccessreviews", forbidden("no")), Unknown, "was not checked: no", ""},
		"too many Deployments of its name":    {"billing", hour, slices.Insert(many, 0, runtime.Object(gone)), nil, nil, Unknown, "only the first are read", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{namespace: terminating(setBy(test.manager, test.written)), refuses: test.refuses,
				core: append(slices.Clone(test.core), lease("kube-system", "kube-controller-manager", "cp-1", time.Second))}
			for _, name := range test.pods {
				w.content = append(w.content, object("Pod", name, func(m *metav1.ObjectMeta) { m.Namespace = "elsewhere" }))
			}
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

// overdue is a configuration that registers an initializer, whose program last reported a while ago.
func overdue(initializer string, reported time.Duration) *v1alpha1.NamespaceInitializerConfiguration {
	return &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"},
		Initializers: []v1alpha1.RegisteredInitializer{{Name: initializer}},
		Status: v1alpha1.NamespaceInitializerConfigurationStatus{Initializers: []v1alpha1.RegisteredInitializerStatus{{
			Name: initializer, Reporter: "system:serviceaccount:quota:server", ReportTime: &metav1.MicroTime{Time: now().Add(-reported)}}}}}
}

// TestTenantsDeployment: a Deployment that is not the controller is not the one to start, wherever it is in the list.
func TestTenantsDeployment(t *testing.T) {
	o := Observation{Installation: bare()}
	o.Runtime.Pods, o.Runtime.Permissions = map[string]Answer[[]corev1.Pod]{}, map[permission]Answer[bool]{}
	for _, namespace := range []string{"tenant", "billing", "tenant-2"} {
		d, account := deployment(namespace, "billing", 0, 0), namespace+"/server"
		o.Runtime.Workloads.Object = append(o.Runtime.Workloads.Object, newWorkload("Deployment", d.ObjectMeta, d.Spec.Template, podCount{}))
		o.Runtime.Pods[account], o.Runtime.Permissions[permission{account, target{}}] = Answer[[]corev1.Pod]{}, Answer[bool]{Object: namespace == "billing"}
	}
	if c, w := o.controller(actor{finalizer: "a/b", manager: "billing"}); c.State != Dead || w == nil || w.namespace != "billing" {
		t.Errorf("%+v of %+v", c, w)
	}
}

// TestActorEvidence: what shows that the program of a participant or an initializer runs. Without a report, no program is dead:
// another one can act under another account.
func TestActorEvidence(t *testing.T) {
	moved := func(r *v1alpha1.NamespaceLifecycle) {
		r.Status.Initializers[0].LastActor = "system:serviceaccount:new:server"
	}
	person := func(r *v1alpha1.NamespaceLifecycle) { r.Status.Initializers[0].LastActor = "jane" }
	named := func(r *v1alpha1.NamespaceLifecycle) {
		r.Spec.Finalizers[1], r.Status.Initializers[0].Name = "ledger.example.com", "ledger.example.com"
	}
	for name, test := range map[string]struct {
		core    []runtime.Object
		refuses func(verb, resource, name string) error
		// reported is the age of the last report, if there is one.
		reported time.Duration
		changes  []func(*v1alpha1.NamespaceLifecycle)
		want     Liveness
		says     string
	}{
		"it has no pods":                    {nil, nil, 0, nil, Unknown, "Pods of ServiceAccount quota/server: no such pods"},
		"its Deployment has no replicas":    {[]runtime.Object{deployment("quota", "x", 0, 0)}, nil, 0, nil, Unknown, "has no replicas and no pods"},
		"it has a pod":                      {[]runtime.Object{pod("quota", "p", corev1.PodRunning, corev1.ConditionTrue)}, nil, 0, nil, Alive, "1, of which 1 are ready"},
		"it reports":                        {nil, nil, time.Second, nil, Alive, "last reported at"},
		"its report is old":                 {nil, nil, time.Hour, nil, Dead, "the report is overdue"},
		"and its Deployment is stopped":     {[]runtime.Object{deployment("quota", "x", 0, 0)}, nil, time.Hour, nil, Dead, "has no replicas and no pods"},
		"and its Deployment has no pods":    {[]runtime.Object{deployment("quota", "x", 1, 0)}, nil, time.Hour, nil, Unknown, "0 of 1 pods are ready"},
		"a Deployment elsewhere":            {[]runtime.Object{deployment("elsewhere", "x", 1, 0)}, nil, time.Hour, nil, Dead, "no such pods"},
		"its pods are secret":               {nil, refuseOnly("list", "pods", forbidden("no")), time.Hour, nil, Unknown, "Pods of ServiceAccount quota/server: not checked: no"},
		"its pod is not ready":              {[]runtime.Object{pod("quota", "p", corev1.PodRunning, corev1.ConditionFalse)}, nil, time.Hour, nil, Unknown, "1, of which 0 are ready"},
		"its pod is ready":                  {[]runtime.Object{pod("quota", "p", corev1.PodRunning, corev1.ConditionTrue)}, nil, time.Hour, nil, Alive, "1, of which 1 are ready"},
		"it acts under another account now": {[]runtime.Object{pod("new", "p", corev1.PodRunning, corev1.ConditionTrue)}, nil, time.Hour, []func(*v1alpha1.NamespaceLifecycle){moved}, Alive, "Pods of ServiceAccount new/server: 1, of which 1"},
		"a person acts":                     {nil, nil, time.Hour, []func(*v1alpha1.NamespaceLifecycle){person}, Unknown, `"jane" acted last, which is no service account`},
		"a similar Deployment":              {[]runtime.Object{deployment("new", "ledger", 1, 0)}, nil, time.Hour, []func(*v1alpha1.NamespaceLifecycle){named}, Unknown, "could be the controller"},
		"a similar Lease":                   {[]runtime.Object{lease("new", "ledger", "l-0", time.Second)}, nil, time.Hour, []func(*v1alpha1.NamespaceLifecycle){named}, Unknown, "could be the controller"},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{namespace: terminating(lifecycleHeld), apis: []runtime.Object{nsinitAPI("True")}, refuses: test.refuses,
				core: append(test.core, lease("nsinit-system", "nsinit-controller-manager", "m-1", time.Second))}
			r := lifecycle(append([]func(*v1alpha1.NamespaceLifecycle){deleting}, test.changes...)...)
			w.lifecycles = []runtime.Object{r}
			if test.reported != 0 {
				w.lifecycles = append(w.lifecycles, overdue(r.Status.Initializers[0].Name, test.reported))
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
			if offered := slices.ContainsFunc(f.Remedies, func(r Remedy) bool { return strings.HasPrefix(r.Command, "kubectl nsinit finalize ") }); offered == (test.want == Alive) {
				t.Errorf("the remedies are %+v", f.Remedies)
			}
		})
	}
}

// TestKubernetesFinalizer: the Lease of kube-controller-manager shows whether it removes a finalizer of Kubernetes. No remedy
// removes it, also if a stopped Deployment has the name of its field manager.
func TestKubernetesFinalizer(t *testing.T) {
	for _, finalizer := range []string{"foregroundDeletion", "kubernetes.io/pvc-protection", "resource.kubernetes.io/delete-protection", "customresourcecleanup.apiextensions.k8s.io"} {
		for age, want := range map[time.Duration]Liveness{time.Second: Alive, time.Hour: Unknown} {
			evidence := 1
			if finalizer == "customresourcecleanup.apiextensions.k8s.io" {
				want, evidence = Unknown, 0
			}
			d := world{namespace: terminating(), content: []runtime.Object{object("Pod", "p", deleted(time.Minute, finalizer), func(m *metav1.ObjectMeta) {
				m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "billing", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"` + finalizer + `\"":{}}}}`)}}
			})}, core: []runtime.Object{lease("kube-system", "kube-controller-manager", "cp-1", age), deployment("x", "billing", 0, 0)}}.diagnoser(t)
			d.Progress = nil
			found, err := d.Diagnose(t.Context(), "ns")
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(found.Findings, func(f Finding) bool { return f.Cause == ContentFinalizer })
			f := found.Findings[i]
			if f.Controller.State != want || len(f.Controller.Evidence) != evidence || slices.ContainsFunc(f.Remedies, func(r Remedy) bool { return r.Risk != "" }) || len(found.Fixable) > 0 {
				t.Errorf("%s, %s: %+v, remedies %+v, fixes for %v", finalizer, age, f.Controller, f.Remedies, found.Fixable)
			}
		}
	}
}

// TestManyObjects: what is known of a controller is concluded once for all objects.
func TestManyObjects(t *testing.T) {
	o := Observation{Name: "ns", Patience: DefaultPatience, Installation: bare(), Namespace: named()}
	o.Runtime.verdicts = map[actor]verdict{}
	all := listing("configmaps")
	for i := range 200 {
		all.Objects = append(all.Objects, object("ConfigMap", fmt.Sprint(i), heldBy("billing"), func(m *metav1.ObjectMeta) { m.ManagedFields[0].Time = ago(time.Duration(i) * time.Hour) }))
	}
	o.Content = []Listing{all}
	finalizedContent(o)
	o.fixContent()
	if len(o.Runtime.verdicts) != 2 {
		t.Errorf("of 2 finalizers, it concluded %d times", len(o.Runtime.verdicts))
	}
}
