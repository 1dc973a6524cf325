//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// workloads are objects for every controller of Kubernetes that needs no node.
const workloads = `
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec: {hard: {pods: "50", count/configmaps: "50"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: deployment}
spec: {replicas: 1, selector: {matchLabels: {app: deployment}}, template: {metadata: {labels: {app: deployment}}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1m}}}]}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: statefulset}
spec:
  serviceName: service
  selector: {matchLabels: {app: statefulset}}
  template: {metadata: {labels: {app: statefulset}}, spec: {containers: [{name: c, image: i}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemonset}
spec: {selector: {matchLabels: {app: daemonset}}, template: {metadata: {labels: {app: daemonset}}, spec: {containers: [{name: c, image: i}]}}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: replicationcontroller}
spec: {replicas: 1, selector: {app: replicationcontroller}, template: {metadata: {labels: {app: replicationcontroller}}, spec: {containers: [{name: c, image: i}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec: {ttlSecondsAfterFinished: 0, template: {metadata: {labels: {app: job}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: cronjob}
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: hpa}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: deployment}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: pdb}
spec: {minAvailable: 1, selector: {matchLabels: {app: deployment}}}
---
apiVersion: v1
kind: Service
metadata: {name: service}
spec: {selector: {app: deployment}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: mirrored}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: mirrored}
subsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: template}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: none}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  containers: [{name: c, image: i}]
  resourceClaims: [{name: r, resourceClaimTemplateName: template}]
  volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]
`

// TestSystemControllers: the controllers of Kubernetes do their work in a namespace while
// it is initializing, and the gate refuses none of them.
func TestSystemControllers(t *testing.T) {
	c := framework.Share(t)
	name := c.CreateHeld(t, c.Admin).Name
	framework.Eventually(t, "the default service account and the root certificate appear", func(context.Context) error {
		_, err := c.Kubectl("--namespace", name, "get", "serviceaccount/default", "configmap/kube-root-ca.crt")
		return err
	})
	if _, err := c.KubectlInput(workloads, "apply", "--server-side", "--namespace", name); err != nil {
		t.Fatal(err)
	}
	// The objects of each controller: what to get, and what it must contain.
	for controller, trace := range map[string]struct{ get, jsonpath, want string }{
		"resourcequota":             {"resourcequota/quota", "{.status.used}", `"count/configmaps":`},
		"deployment":                {"deployment/deployment", "{.status.unavailableReplicas}", "1"},
		"replicaset":                {"pods", `{.items[*].metadata.ownerReferences[*].kind}`, "ReplicaSet"},
		"statefulset":               {"pods,persistentvolumeclaims", "{.items[*].metadata.name}", "data-statefulset-0"},
		"daemon-set":                {"daemonset/daemonset", "{.status.observedGeneration}", "1"},
		"replication":               {"replicationcontroller/replicationcontroller", "{.status.replicas}", "1"},
		"job":                       {"pods", `{.items[*].metadata.ownerReferences[*].name}`, "job"},
		"horizontal-pod-autoscaler": {"horizontalpodautoscaler/hpa", "{.status.conditions[*].type}", "AbleToScale"},
		"disruption":                {"poddisruptionbudget/pdb", "{.status.expectedPods}", "1"},
		"endpoint":                  {"endpoints", "{.items[*].metadata.name}", "service"},
		"endpointslice":             {"endpointslices", "{.items[*].metadata.ownerReferences[*].kind}", "Service"},
		"endpointslicemirroring":    {"endpointslices", "{.items[*].endpoints[*].addresses[*]}", "192.0.2.1"},
		"persistent-volume-binder":  {"events", "{.items[*].reason}", "FailedBinding"},
		"ephemeral-volume":          {"persistentvolumeclaims", "{.items[*].metadata.name}", "pod-v"},
		"resource-claim":            {"resourceclaims", "{.items[*].metadata.ownerReferences[*].name}", "pod"},
	} {
		framework.Eventually(t, controller+"-controller", func(context.Context) error {
			out, err := c.Kubectl("--namespace", name, "get", trace.get, "-o", "jsonpath="+trace.jsonpath)
			if err == nil && !strings.Contains(out, trace.want) {
				err = fmt.Errorf("%s of %s is %q, want %q in it", trace.jsonpath, trace.get, out, trace.want)
			}
			return err
		})
	}
	finishJob(t, c, name)
	framework.Eventually(t, "ttl-after-finished-controller", gone(c, name, "job/job"))
	for controller, object := range map[string]string{"pvc-protection-controller": "persistentvolumeclaim/claim", "generic-garbage-collector": "deployment/deployment"} {
		if _, err := c.Kubectl("--namespace", name, "delete", object, "--cascade=foreground", "--timeout="+framework.Patience.String()); err != nil {
			t.Errorf("%s: %v", controller, err)
		}
	}
	framework.Eventually(t, "cronjob-controller", func(context.Context) error {
		out, err := c.Kubectl("--namespace", name, "get", "cronjob/cronjob", "-o", "jsonpath={.status.lastScheduleTime}")
		if err == nil && out == "" {
			err = errors.New("it has made no job yet")
		}
		return err
	})
	if !c.IsClosed(t, name) {
		t.Error("the gate has opened meanwhile, so this proves nothing")
	}
	// The namespace controller removes all of it while the gate is closed.
	c.DeleteNamespace(t, name)
	if _, err := c.Kubectl("--namespace", name, "delete", "pods", "--all", "--force", "--grace-period=0"); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Error(err)
	}
	c.WaitNoNamespace(t, name)
	noneRefused(t, c, name)
}

// finishJob reports that the pod of the job has succeeded, as a node does.
func finishJob(t *testing.T, c *framework.Cluster, namespace string) {
	t.Helper()
	pods, err := c.Core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=job"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("the pods of the job: %d, %v", len(pods.Items), err)
	}
	for _, pod := range pods.Items {
		if _, err := c.Core.CoreV1().Pods(namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
}

// gone returns a check that an object does not exist.
func gone(c *framework.Cluster, namespace, object string) func(context.Context) error {
	return func(context.Context) error {
		out, err := c.Kubectl("--namespace", namespace, "get", object, "--ignore-not-found", "-o", "name")
		if err == nil && out != "" {
			err = errors.New("it is still there")
		}
		return err
	}
}

// noneRefused checks kube-apiserver's answers to the programs of Kubernetes, and the log of kube-controller-manager.
func noneRefused(t *testing.T, c *framework.Cluster, namespace string) {
	t.Helper()
	file, err := os.Open(filepath.Join(c.Dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	writes, lines := 0, bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event struct {
			User           struct{ Username string }
			ObjectRef      struct{ Namespace string }
			ResponseStatus metav1.Status
			RequestURI     string
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("the audit log: %v", err)
		}
		if event.ObjectRef.Namespace != namespace || !strings.HasPrefix(event.User.Username, "system:serviceaccount:kube-system:") {
			continue
		}
		writes++
		if strings.Contains(event.ResponseStatus.Message, "nsinit-gate") {
			t.Errorf("%s was refused: %s: %s", event.User.Username, event.RequestURI, event.ResponseStatus.Message)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("the audit log: %v", err)
	}
	if writes == 0 {
		t.Error("the audit log has no write of a controller of Kubernetes, so this proves nothing")
	}
	log, err := os.ReadFile(filepath.Join(c.Dir, "kube-controller-manager.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "nsinit-gate") && strings.Contains(line, namespace) {
			t.Errorf("kube-controller-manager says: %s", line)
		}
	}
}

// TestSystemControllersMayInitialize: every controller whose role lets it write objects of
// namespaces holds the verb initialize. A new version of Kubernetes may bring more.
func TestSystemControllersMayInitialize(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Share(t)
	namespaced := namespacedResources(t, c)
	bindings, err := c.Core.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/bootstrapping=rbac-defaults"})
	if err != nil {
		t.Fatal(err)
	}
	writers := []rbacv1.Subject{
		{Kind: rbacv1.UserKind, Name: "system:kube-controller-manager"},
		{Kind: rbacv1.UserKind, Name: "system:kube-scheduler"},
		{Kind: rbacv1.GroupKind, Name: "system:nodes"},
	}
	for _, binding := range bindings.Items {
		if !strings.HasPrefix(binding.Name, "system:controller:") {
			continue
		}
		role, err := c.Core.RbacV1().ClusterRoles().Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(role.Rules, namespaced.writtenBy) {
			writers = append(writers, binding.Subjects...)
		}
	}
	if len(writers) < 20 {
		t.Errorf("%d subjects write into namespaces, so this proves nothing", len(writers))
	}
	for _, subject := range writers {
		review := authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: v1alpha1.VerbInitialize, Resource: "namespaces", Name: "any"}}
		switch subject.Kind {
		case rbacv1.ServiceAccountKind:
			review.User = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
		case rbacv1.GroupKind:
			review.Groups = []string{subject.Name}
		default:
			review.User = subject.Name
		}
		answer, err := c.Core.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: review}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !answer.Status.Allowed {
			t.Errorf("%s %s writes into namespaces and may not initialize: bind it in artifacts/deploy/base/system-controllers.yaml", subject.Kind, subject.Name)
		}
	}
}

// resources are names of resources, with their subresources, by group.
type resources map[string][]string

func namespacedResources(t *testing.T, c *framework.Cluster) resources {
	t.Helper()
	_, lists, err := c.Core.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	found := resources{}
	for _, list := range lists {
		group, _, hasGroup := strings.Cut(list.GroupVersion, "/")
		if !hasGroup {
			group = ""
		}
		for _, resource := range list.APIResources {
			// Events are written about other objects.
			if resource.Namespaced && resource.Name != "events" {
				found[group] = append(found[group], resource.Name)
			}
		}
	}
	return found
}

// writtenBy reports whether a rule allows to write one of the resources.
func (r resources) writtenBy(rule rbacv1.PolicyRule) bool {
	if !slices.ContainsFunc(rule.Verbs, func(verb string) bool {
		return slices.Contains([]string{"*", "create", "update", "patch", "delete", "deletecollection"}, verb)
	}) {
		return false
	}
	return slices.ContainsFunc(rule.APIGroups, func(group string) bool {
		return slices.ContainsFunc(rule.Resources, func(resource string) bool {
			return group == "*" || resource == "*" || slices.Contains(r[group], resource)
		})
	})
}
