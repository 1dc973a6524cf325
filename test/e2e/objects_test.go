//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const (
	scan, approve = "a-scan.e2e.example.com", "b-approve.e2e.example.com"

	objectWorkloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: deployed, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: deployed}}
  template:
    metadata: {labels: {app: deployed}}
    spec:
      schedulingGates: [{name: other.example.com/gate}, {name: initializers.nsinit.dev/forged.example.com}]
      containers: [{name: main, image: none}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: daemon}}
  template:
    metadata: {labels: {app: daemon}}
    spec: {containers: [{name: main, image: none}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: timed, namespace: NAMESPACE}
spec:
  schedule: "* * * * *"
  jobTemplate:
    metadata: {labels: {app: timed}}
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}}
`
)

// objectsTest is what the parts of TestObjects share.
type objectsTest struct {
	*framework.Cluster
	t               *testing.T
	namespace       string
	tenant, scanner kubernetes.Interface
	configuration   string
	generation      int
}

// TestObjects: Kubernetes holds new pods and Jobs until their initializers are done, and only these remove themselves.
func TestObjects(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	if !c.StampsByPolicy(t) {
		refuseObjects(t, c)
		return
	}
	o := newObjectsTest(t, c)
	o.tenant = kubernetes.NewForConfigOrDie(c.User(t, "e2e-objects-tenant", framework.Everything()))
	o.scanner = kubernetes.NewForConfigOrDie(c.User(t, "e2e-objects-scanner", framework.Everything(), initializes(scan)))
	o.refusals()
	o.register(nil, nil)
	o.tryPods()
	o.tryJobs()
	o.workloads()
	o.deadlines()
	o.sdk()
	o.released()
}

// newObjectsTest installs the component, and returns an open namespace for which no initializer is registered.
func newObjectsTest(t *testing.T, c *framework.Cluster) *objectsTest {
	t.Helper()
	if _, err := installObjects(t, c); err != nil {
		t.Fatal(err)
	}
	o := &objectsTest{Cluster: c, t: t, namespace: c.CreateNamespace(t, c.Admin).Name, configuration: "50-e2e"}
	c.WaitReady(t, o.namespace)
	return o
}

// installObjects installs the component until the test ends.
func installObjects(t *testing.T, c *framework.Cluster) (string, error) {
	t.Helper()
	dir := filepath.Join(c.Root, "artifacts", "deploy", "components", "objects")
	files := []string{"--filename=" + filepath.Join(dir, "guard.yaml"), "--filename=" + filepath.Join(dir, "rights.yaml")}
	t.Cleanup(func() {
		if _, err := c.Kubectl(append([]string{"delete", "--ignore-not-found"}, files...)...); err != nil && c.StampsByPolicy(t) {
			t.Error(err)
		}
	})
	return c.Kubectl(append([]string{"apply", "--server-side"}, files...)...)
}

// refuseObjects: an older version of Kubernetes refuses a part of the component, and a configuration says that it has no effect.
func refuseObjects(t *testing.T, c *framework.Cluster) {
	t.Helper()
	if out, err := installObjects(t, c); err == nil || !strings.Contains(err.Error(), "MutatingAdmissionPolicy") {
		t.Errorf("the component is installed: %v %s", err, out)
	}
	client, name := c.Nsinit.NsinitV1alpha1().InitializerConfigurations(), framework.UniqueName("objects")
	configuration := &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: []v1alpha1.Initializer{objectInitializer(scan, "no-such-namespace", "pods")}}
	if _, err := client.Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	framework.Eventually(t, "the configuration has no effect", func(ctx context.Context) error {
		stored, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionInForce)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != "NotSupported" {
			return fmt.Errorf("InForce is %+v", condition)
		}
		return nil
	})
}

// initializes lets a user act as an initializer.
func initializes(name string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.ResourceInitializers}, ResourceNames: []string{name}, Verbs: []string{v1alpha1.VerbInitialize}}
}

func objectInitializer(name, namespace string, resources ...string) v1alpha1.Initializer {
	i := v1alpha1.Initializer{Name: name, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}}
	for _, resource := range resources {
		i.Rules = append(i.Rules, v1alpha1.Rule{APIGroups: []string{v1alpha1.HeldResources()[resource]}, APIVersions: []string{"v1"}, Resources: []string{resource}})
	}
	return i
}

// refusals: resources that Kubernetes does not hold cannot be registered, nor can an initializer begin with Fail.
func (o *objectsTest) refusals() {
	client := o.Nsinit.NsinitV1alpha1().InitializerConfigurations()
	for resource, group := range map[string]string{"deployments": "apps", "*": "", "pods/exec": "", "*/*": "*", "jobs": ""} {
		i := objectInitializer(scan, o.namespace)
		i.Rules = []v1alpha1.Rule{{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}}}
		_, err := client.Create(o.t.Context(), &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.configuration}, Initializers: []v1alpha1.Initializer{i}}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "docs/decisions.md") {
			o.t.Errorf("%s is registered: %v", resource, err)
		}
	}
	i := objectInitializer(scan, o.namespace, "pods")
	i.FailurePolicy = new(v1alpha1.Fail)
	_, err := client.Create(o.t.Context(), &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.configuration}, Initializers: []v1alpha1.Initializer{i}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		o.t.Errorf("an initializer begins with Fail: %v", err)
	}
}

// register registers the two initializers, and waits until they are in force.
func (o *objectsTest) register(policy *v1alpha1.FailurePolicyType, seconds *int32) {
	o.t.Helper()
	client := o.Nsinit.NsinitV1alpha1().InitializerConfigurations()
	first := objectInitializer(scan, o.namespace, "pods", "jobs")
	first.FailurePolicy, first.TimeoutSeconds = policy, seconds
	o.generation++ // another policy, whose time until it is in force is measured
	initializers := []v1alpha1.Initializer{first, objectInitializer(approve, o.namespace, "pods", "jobs"),
		objectInitializer(fmt.Sprintf("c-%d.e2e.example.com", o.generation), "no-such-namespace", "pods", "jobs")}
	began := time.Now()
	framework.Eventually(o.t, "the configuration is stored", func(ctx context.Context) error {
		stored, err := client.Get(ctx, o.configuration, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.configuration}, Initializers: initializers}, metav1.CreateOptions{})
			return err
		}
		if err == nil {
			stored.Initializers = initializers
			_, err = client.Update(ctx, stored, metav1.UpdateOptions{})
		}
		return err
	})
	stored := time.Now()
	waitInForce(o.t, o.Cluster, o.configuration)
	o.t.Logf("in force %s after it was stored, which took %s", time.Since(stored).Round(time.Millisecond), stored.Sub(began).Round(time.Millisecond))
}

// waitInForce waits until the newest version of an InitializerConfiguration is in force.
func waitInForce(t *testing.T, c *framework.Cluster, name string) {
	t.Helper()
	framework.Eventually(t, "the configuration is in force", func(ctx context.Context) error {
		stored, err := c.Nsinit.NsinitV1alpha1().InitializerConfigurations().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionInForce)
		if condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != stored.Generation {
			return fmt.Errorf("generation %d: %+v", stored.Generation, condition)
		}
		return nil
	})
}

func (o *objectsTest) refused(what string, err error) {
	o.t.Helper()
	o.t.Logf("%s: %v", what, err)
	if err := framework.RefusedBy(installation.ObjectsGuard, err, ""); err != nil {
		o.t.Errorf("%s: %v", what, err)
	}
}

func (o *objectsTest) must(what string, err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatalf("%s: %v", what, err)
	}
}

func (o *objectsTest) waits(object metav1.Object, want ...string) {
	o.t.Helper()
	if got := helper.PendingOfObject(object); !slices.Equal(got, want) {
		o.t.Fatalf("%s waits for %v, want %v", object.GetName(), got, want)
	}
}

func (o *objectsTest) tryPods() {
	t, ctx := o.t, o.t.Context()
	pods, tenants := o.Core.CoreV1().Pods(o.namespace), o.tenant.CoreV1().Pods(o.namespace)
	forged := podOf("forged")
	forged.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PendingPrefix + approve}, {Name: "other.example.com/gate"}, {Name: v1alpha1.PendingPrefix + "x.example.com"}}
	created, err := tenants.Create(ctx, forged, metav1.CreateOptions{})
	o.must("a tenant creates a pod with forged gates", err)
	o.waits(created, scan, approve)
	if len(created.Spec.SchedulingGates) != 3 {
		t.Errorf("the gates are %v", created.Spec.SchedulingGates)
	}
	gates := func(names ...string) string {
		var list []string
		for _, name := range names {
			list = append(list, fmt.Sprintf(`{"name":%q}`, name))
		}
		return `{"spec":{"schedulingGates":[` + strings.Join(list, ",") + `]}}`
	}
	a, b, foreign := v1alpha1.PendingPrefix+scan, v1alpha1.PendingPrefix+approve, "other.example.com/gate"
	patch := func(client kubernetes.Interface, kind types.PatchType, body string, subresources ...string) error {
		options := metav1.PatchOptions{}
		if kind == types.ApplyPatchType {
			options = metav1.PatchOptions{FieldManager: "e2e", Force: new(true)}
		}
		_, err := client.CoreV1().Pods(o.namespace).Patch(ctx, created.Name, kind, []byte(body), options, subresources...)
		return err
	}
	o.refused("a tenant: merge patch", patch(o.tenant, types.MergePatchType, gates(foreign)))
	o.refused("a tenant: merge patch of all", patch(o.tenant, types.MergePatchType, ungate))
	o.refused("a tenant: strategic merge patch", patch(o.tenant, types.StrategicMergePatchType, `{"spec":{"schedulingGates":[{"$patch":"delete","name":"`+a+`"}]}}`))
	o.refused("a tenant: JSON patch", patch(o.tenant, types.JSONPatchType, `[{"op":"remove","path":"/spec/schedulingGates/1"}]`))
	o.refused("an initializer, out of order", patch(o.scanner, types.MergePatchType, gates(foreign, a)))
	o.refused("an initializer, all", patch(o.scanner, types.MergePatchType, gates(foreign)))
	updated := created.DeepCopy()
	updated.Spec.SchedulingGates = nil
	_, err = tenants.Update(ctx, updated, metav1.UpdateOptions{})
	o.refused("a tenant: update", err)
	_, err = tenants.UpdateStatus(ctx, updated.DeepCopy(), metav1.UpdateOptions{})
	o.must("a tenant: update of the status", err)
	bind := tenants.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: created.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "none"}}, metav1.CreateOptions{})
	t.Logf("a tenant: binding: %v", bind)
	if !apierrors.IsConflict(bind) {
		t.Errorf("a tenant binds the pod: %v", bind)
	}
	for _, subresource := range []string{"status", "ephemeralcontainers", "resize"} {
		t.Logf("a tenant: patch of %s: %v", subresource, patch(o.tenant, types.MergePatchType, ungate, subresource))
	}
	placed := podOf("placed")
	placed.Spec.NodeName = "none"
	_, err = tenants.Create(ctx, placed, metav1.CreateOptions{})
	t.Logf("a tenant: a pod with nodeName: %v", err)
	if !apierrors.IsInvalid(err) {
		t.Errorf("a pod with nodeName: %v", err)
	}
	current, err := pods.Get(ctx, created.Name, metav1.GetOptions{})
	o.must("read the pod", err)
	o.waits(current, scan, approve)
	o.must("the initializer removes its gate", patch(o.scanner, types.MergePatchType, gates(foreign, b)))
	o.refused("the initializer removes the next gate", patch(o.scanner, types.MergePatchType, gates(foreign)))
	_, err = pods.Patch(ctx, created.Name, types.MergePatchType, []byte(ungate), metav1.PatchOptions{})
	o.must("an administrator with open removes the rest", err)
	late := gates(a)
	t.Logf("a gate is added: %v", patch(o.scanner, types.MergePatchType, late))
	if plain, err := o.Core.CoreV1().Pods("default").Create(ctx, podOf("objects-elsewhere"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || len(helper.PendingOfObject(plain)) > 0 {
		t.Errorf("a pod in an exempt namespace: %v, %v", plain.Spec.SchedulingGates, err)
	}
}

func plainJob(name string, suspend bool) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Suspend: &suspend,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: podOf("").Spec.Containers}}}}
}

func (o *objectsTest) tryJobs() {
	ctx := o.t.Context()
	jobs := o.Core.BatchV1().Jobs(o.namespace)
	a, b := v1alpha1.PendingPrefix+scan, v1alpha1.PendingPrefix+approve
	unlabel := func(labels ...string) string {
		var list []string
		for _, label := range labels {
			list = append(list, fmt.Sprintf("%q:null", label))
		}
		return `{"metadata":{"labels":{` + strings.Join(list, ",") + `}}}`
	}
	for name, suspended := range map[string]bool{"runs": false, "stays-suspended": true} {
		created, err := o.tenant.BatchV1().Jobs(o.namespace).Create(ctx, plainJob(name, suspended), metav1.CreateOptions{})
		o.must("a tenant creates a Job", err)
		o.waits(created, scan, approve)
		patch := func(client kubernetes.Interface, body string, subresources ...string) error {
			_, err := client.BatchV1().Jobs(o.namespace).Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
			return err
		}
		o.refused("a tenant resumes the Job", patch(o.tenant, `{"spec":{"suspend":false}}`))
		o.refused("a tenant removes the labels", patch(o.tenant, unlabel(a, b)))
		o.refused("a tenant removes the labels through the status", patch(o.tenant, unlabel(a, b), "status"))
		o.refused("a tenant changes the position", patch(o.tenant, `{"metadata":{"labels":{"`+b+`":"0"}}}`))
		o.refused("a tenant changes the wish", patch(o.tenant, `{"metadata":{"annotations":{"`+v1alpha1.AnnotationSuspend+`":`+map[bool]string{true: "null", false: `"true"`}[suspended]+`}}}`))
		o.refused("an initializer, out of order", patch(o.scanner, unlabel(b)))
		o.refused("an initializer resumes the Job", patch(o.scanner, `{"metadata":{"labels":{"`+a+`":null}},"spec":{"suspend":false}}`))
		o.must("the initializer removes its label", patch(o.scanner, unlabel(a)))
		_, err = jobs.Patch(ctx, name, types.MergePatchType, []byte(unlabel(b)), metav1.PatchOptions{})
		o.must("an administrator removes the last label", err)
		released, err := jobs.Get(ctx, name, metav1.GetOptions{})
		o.must("read the Job", err)
		if *released.Spec.Suspend != suspended || released.Annotations[v1alpha1.AnnotationSuspend] != "" {
			o.t.Errorf("Job %s has suspend %t and annotations %v", name, *released.Spec.Suspend, released.Annotations)
		}
	}
	o.waitPods("job-name=runs")
	forged := plainJob("forged", false)
	forged.Spec.Template.Labels = map[string]string{a: "0"}
	_, err := o.tenant.BatchV1().Jobs(o.namespace).Create(ctx, forged, metav1.CreateOptions{})
	if err := framework.RefusedBy("nsinit-objects-templates", err, ""); err != nil {
		o.t.Errorf("a tenant forges a label of the pod template: %v", err)
	}
}

// waitPods waits until a pod of a workload waits for both initializers, and returns it.
func (o *objectsTest) waitPods(selector string) (pod corev1.Pod) {
	o.t.Helper()
	framework.Eventually(o.t, "a pod of "+selector+" waits", func(ctx context.Context) error {
		list, err := o.Core.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(list.Items) == 0 {
			return errors.Join(err, errors.New("there is no pod"))
		}
		pod = list.Items[0]
		if got := helper.PendingOfObject(&pod); !slices.Equal(got, []string{scan, approve}) || pod.Spec.NodeName != "" {
			return fmt.Errorf("on %q: %v", pod.Spec.NodeName, pod.Spec.SchedulingGates)
		}
		return nil
	})
	return pod
}

// workloads: the pods and Jobs of controllers wait, too.
func (o *objectsTest) workloads() {
	if _, err := o.Core.CoreV1().Nodes().Create(o.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "e2e-objects"}}, metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		_ = o.Core.CoreV1().Nodes().Delete(context.WithoutCancel(o.t.Context()), "e2e-objects", metav1.DeleteOptions{})
	})
	o.ApplyInput(o.t, strings.ReplaceAll(objectWorkloads, "NAMESPACE", o.namespace))
	// The CronJob controller has missed a Job, and creates it immediately.
	missed := fmt.Appendf(nil, `{"status":{"lastScheduleTime":%q}}`, time.Now().Add(-2*time.Minute).UTC().Format(time.RFC3339))
	_, err := o.Core.BatchV1().CronJobs(o.namespace).Patch(o.t.Context(), "timed", types.MergePatchType, missed, metav1.PatchOptions{}, "status")
	o.must("set the time of the last Job", err)
	if pod := o.waitPods("app=deployed"); len(pod.Spec.SchedulingGates) != 3 {
		o.t.Errorf("the pod of the Deployment has %v", pod.Spec.SchedulingGates)
	}
	o.waitPods("app=daemon")
	framework.Eventually(o.t, "the Job of the CronJob waits", func(ctx context.Context) error {
		list, err := o.Core.BatchV1().Jobs(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=timed"})
		if err != nil || len(list.Items) == 0 {
			return errors.Join(err, errors.New("there is no Job"))
		}
		o.waits(&list.Items[0], scan, approve)
		return nil
	})
	for _, name := range []string{"deployment/deployed", "daemonset/daemon", "cronjob/timed"} {
		if _, err := o.Kubectl("delete", "--namespace="+o.namespace, name); err != nil {
			o.t.Error(err)
		}
	}
}

// deadlines: Ignore skips the initializer, and Fail ends the object.
func (o *objectsTest) deadlines() {
	ctx := o.t.Context()
	pods, jobs := o.Core.CoreV1().Pods(o.namespace), o.Core.BatchV1().Jobs(o.namespace)
	o.register(new(v1alpha1.Ignore), new(int32(2)))
	_, err := pods.Create(ctx, podOf("ignored"), metav1.CreateOptions{})
	o.must("create a pod", err)
	_, err = jobs.Create(ctx, plainJob("ignored", false), metav1.CreateOptions{})
	o.must("create a Job", err)
	framework.Eventually(o.t, "the initializer is skipped", func(ctx context.Context) error {
		pod, podErr := pods.Get(ctx, "ignored", metav1.GetOptions{})
		job, jobErr := jobs.Get(ctx, "ignored", metav1.GetOptions{})
		if err := errors.Join(podErr, jobErr); err != nil {
			return err
		}
		if !slices.Equal(helper.PendingOfObject(pod), []string{approve}) || !slices.Equal(helper.PendingOfObject(job), []string{approve}) {
			return fmt.Errorf("they wait for %v and %v", helper.PendingOfObject(pod), helper.PendingOfObject(job))
		}
		return nil
	})
	o.register(new(v1alpha1.Fail), new(int32(2)))
	_, err = pods.Create(ctx, podOf("failed"), metav1.CreateOptions{})
	o.must("create a pod", err)
	_, err = jobs.Create(ctx, plainJob("failed", false), metav1.CreateOptions{})
	o.must("create a Job", err)
	framework.Eventually(o.t, "the objects fail", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "failed", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) && (err != nil || pod.DeletionTimestamp == nil) {
			return errors.Join(err, errors.New("the pod exists"))
		}
		job, err := jobs.Get(ctx, "failed", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobFailed }) || len(helper.PendingOfObject(job)) > 0 {
			return fmt.Errorf("the Job has %v and waits for %v", job.Status.Conditions, helper.PendingOfObject(job))
		}
		return nil
	})
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "job-name=failed"})
	if err != nil || len(list.Items) > 0 {
		o.t.Errorf("the failed Job has %d pods: %v", len(list.Items), err)
	}
	framework.Eventually(o.t, "events say so", func(ctx context.Context) error {
		events, err := o.Core.CoreV1().Events(o.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := map[string]bool{}
		for _, event := range events.Items {
			found[event.Reason+" "+event.InvolvedObject.Kind+" "+event.InvolvedObject.Name] = true
		}
		for _, want := range []string{"InitializerSkipped Pod ignored", "InitializerSkipped Job ignored", "InitializerFailed Pod failed", "InitializerFailed Job failed"} {
			if !found[want] {
				return fmt.Errorf("there is no event %s", want)
			}
		}
		return nil
	})
	o.register(nil, nil)
}

// sdk: an initializer that uses the SDK acts in its turn.
func (o *objectsTest) sdk() {
	config := o.User(o.t, "e2e-objects-sdk", framework.Everything(), initializes(scan), initializes(approve))
	ctx, cancel := context.WithCancel(o.t.Context())
	defer cancel()
	ended := make(chan error, 2)
	for _, name := range []string{scan, approve} {
		runner, err := initializer.New(initializer.Options{Name: name, Core: kubernetes.NewForConfigOrDie(config), Nsinit: versioned.NewForConfigOrDie(config),
			InitializeObject: func(ctx context.Context, object initializer.Object) error {
				o.t.Logf("%s acts on %T %s (%s)", name, object, object.GetName(), initializer.IdempotencyKey(ctx))
				return nil
			}})
		o.must("make an initializer", err)
		go func() { ended <- runner.Run(ctx) }()
	}
	_, from := o.AuditSince(o.t, 0)
	_, err := o.Core.BatchV1().Jobs(o.namespace).Create(ctx, plainJob("initialized", false), metav1.CreateOptions{})
	o.must("create a Job", err)
	pod := ""
	framework.Eventually(o.t, "the Job and its pod are initialized", func(ctx context.Context) error {
		list, err := o.Core.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{LabelSelector: "job-name=initialized"})
		if err != nil || len(list.Items) != 1 || len(list.Items[0].Spec.SchedulingGates) > 0 {
			return errors.Join(err, fmt.Errorf("%d pods", len(list.Items)))
		}
		pod = list.Items[0].Name
		stored, err := o.Nsinit.NsinitV1alpha1().InitializerConfigurations().Get(ctx, o.configuration, metav1.GetOptions{})
		if err != nil || len(stored.Status.Initializers) < 2 || stored.Status.Initializers[1].Reporter != "e2e-objects-sdk" {
			return errors.Join(err, errors.New("they are not served"))
		}
		return nil
	})
	framework.Eventually(o.t, "each initializer sent one request for each object, and nsinit sent none", func(context.Context) error {
		events, _ := o.AuditSince(o.t, from)
		sent := map[string]int{}
		for _, e := range events {
			name, user := e.ObjectRef.Resource+"/"+e.ObjectRef.Name, cmp.Or(e.ImpersonatedUser.Username, e.User.Username)
			if e.ObjectRef.Namespace == o.namespace && (name == "jobs/initialized" || name == "pods/"+pod) && (user == "e2e-objects-sdk" || strings.Contains(user, installation.DefaultNamespace)) {
				sent[user+" "+e.Verb+" "+e.ObjectRef.Resource]++
			}
		}
		if want := map[string]int{"e2e-objects-sdk patch jobs": 2, "e2e-objects-sdk patch pods": 2}; !maps.Equal(sent, want) {
			return fmt.Errorf("the requests are %v", sent)
		}
		return nil
	})
	cancel()
	o.must("the initializers end", errors.Join(<-ended, <-ended))
}

// released: objects of a deleted configuration are released.
func (o *objectsTest) released() {
	ctx := o.t.Context()
	_, err := o.Core.CoreV1().Pods(o.namespace).Create(ctx, podOf("released"), metav1.CreateOptions{})
	o.must("create a pod", err)
	_, err = o.Core.BatchV1().Jobs(o.namespace).Create(ctx, plainJob("released", false), metav1.CreateOptions{})
	o.must("create a Job", err)
	if stdout, _, _ := o.Plugin(o.t, "check"); !strings.Contains(stdout, scan) {
		o.t.Errorf("check does not say that objects wait:\n%s", stdout)
	}
	finding := o.WaitWhy(o.t, o.namespace, diagnosis.ObjectInitializerPending, diagnosis.Waiting)
	for _, part := range []string{scan, "pods/released", "jobs/released", "a program serves the initializer"} {
		if !strings.Contains(finding.Message, part) {
			o.t.Errorf("why does not say %q: %s", part, finding.Message)
		}
	}
	o.must("delete the configuration", o.Nsinit.NsinitV1alpha1().InitializerConfigurations().Delete(ctx, o.configuration, metav1.DeleteOptions{}))
	framework.Eventually(o.t, "the objects are released, and new ones do not wait", func(ctx context.Context) error {
		pod, podErr := o.Core.CoreV1().Pods(o.namespace).Get(ctx, "released", metav1.GetOptions{})
		job, jobErr := o.Core.BatchV1().Jobs(o.namespace).Get(ctx, "released", metav1.GetOptions{})
		plain, plainErr := o.Core.CoreV1().Pods(o.namespace).Create(ctx, podOf("free"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err := errors.Join(podErr, jobErr, plainErr); err != nil {
			return err
		}
		if len(pod.Spec.SchedulingGates)+len(helper.PendingOfObject(job))+len(plain.Spec.SchedulingGates) > 0 || *job.Spec.Suspend {
			return fmt.Errorf("they wait: %v, %v", pod.Spec.SchedulingGates, job.Labels)
		}
		return nil
	})
}
