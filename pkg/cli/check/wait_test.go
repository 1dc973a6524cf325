/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/diagnosis"
)

func objectMeta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "nsinit-system", Name: name, Generation: 2, Labels: labels}
}

func deployment(name string, status appsv1.DeploymentStatus) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: objectMeta(name, map[string]string{"app.kubernetes.io/part-of": "nsinit"}), Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: status}
}

// TestPrograms: a rollout that has not ended is unfinished, and a program without pods is a problem.
func TestPrograms(t *testing.T) {
	labels := map[string]string{"app.kubernetes.io/part-of": "nsinit"}
	server := &appsv1.StatefulSet{ObjectMeta: objectMeta("nsinit-apiserver", labels), Status: appsv1.StatefulSetStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}}
	complete := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	changed := func(change func(*appsv1.DeploymentStatus)) *appsv1.Deployment {
		status := complete
		change(&status)
		return deployment("cm", status)
	}
	const check, remedy = "Programs", "kubectl --namespace nsinit-system rollout status deployment/cm"
	warning := func(message string) []Result {
		return []Result{{Check: check, State: Warning, Message: message, Remedy: remedy, Unfinished: true}}
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		want    []Result
	}{
		"elsewhere": {[]runtime.Object{&appsv1.Deployment{ObjectMeta: objectMeta("other", nil)}},
			[]Result{{Check: check, State: OK, Message: "namespace nsinit-system has no Deployment or StatefulSet of nsinit: the programs run elsewhere"}}},
		"complete":             {[]runtime.Object{server, deployment("cm", complete)}, []Result{{Check: check, State: OK, Message: "deployment/cm has 2 of 2 pods available, statefulset/nsinit-apiserver has 1 of 1 pods available"}}},
		"no pod":               {[]runtime.Object{server, deployment("cm", appsv1.DeploymentStatus{})}, []Result{{Check: check, State: Problem, Message: "deployment/cm has 0 of 2 pods available", Remedy: remedy}}},
		"one pod":              {[]runtime.Object{server, changed(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 1 })}, warning("deployment/cm has 1 of 2 pods available, 2 of the newest version")},
		"old pods":             {[]runtime.Object{changed(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 1 })}, warning("deployment/cm has 2 of 2 pods available, 1 of the newest version")},
		"a pod too many":       {[]runtime.Object{changed(func(s *appsv1.DeploymentStatus) { s.Replicas, s.AvailableReplicas = 3, 3 })}, warning("deployment/cm has 2 of 2 pods available, 2 of the newest version")},
		"changed a moment ago": {[]runtime.Object{changed(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 })}, warning("deployment/cm has 2 of 2 pods available, 2 of the newest version")},
	} {
		t.Run(name, func(t *testing.T) {
			i := &inspection{namespace: "nsinit-system", Clients: &cmdutil.Clients{Clients: diagnosis.NewClients(fake.NewClientset(test.objects...), nil, nil, nil)}}
			i.programs(t.Context())
			if diff := cmp.Diff(test.want, i.results); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestProgramsUnknown: what the user may not list is no reason to wait.
func TestProgramsUnknown(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(appsv1.Resource("statefulsets"), "", nil)
	})
	i := &inspection{namespace: "nsinit-system", Clients: &cmdutil.Clients{Clients: diagnosis.NewClients(client, nil, nil, nil)}}
	i.programs(t.Context())
	if len(i.results) != 1 || i.results[0].State != Warning || len(incomplete(i.results)) != 0 || !strings.Contains(i.results[0].Message, "not checked") {
		t.Errorf("found %+v", i.results)
	}
}
