/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/cli/check"
	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
)

// installed returns a cluster in which nsinit runs. Its policies are missing.
func installed() *cmdtesting.Cluster {
	holder, seconds, renewed := "one", int32(15), metav1.NewMicroTime(cmdtesting.Now())
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: name}}
	}
	cluster := cmdtesting.New(configMap("nsinit-exemptions"), configMap("nsinit-storage"), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: "nsinit-controller-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}})
	cluster.Core.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.36.0"}
	cluster.Core.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelInitializing: ""}}}, nil
	})
	cluster.Respond(http.StatusOK, "{}")
	return cluster
}

func old(cluster *cmdtesting.Cluster) *cmdtesting.Cluster {
	cluster.Core.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.30.0"}
	return cluster
}

func stopped(cluster *cmdtesting.Cluster) *cmdtesting.Cluster {
	cluster.Clients.Clock.(cmdtesting.Clock).Step(time.Minute)
	return cluster
}

// TestCheck: each finding is a line, an item, and part of the exit code.
func TestCheck(t *testing.T) {
	const items = "--output=jsonpath={.kind}{range .items[*]} {.check}={.state}{end}"
	for name, test := range map[string]struct {
		cluster *cmdtesting.Cluster
		args    []string
		// lines are parts of the output.
		lines []string
		err   string
	}{
		"text": {installed(), nil, []string{"CHECK ", "Kubernetes     OK        v1.36.0", "Controllers    OK        one holds Lease", "helps: ",
			"APIService     Problem   nsinit is not installed (APIService v1alpha1.nsinit.dev does not exist)", "Gate           OK        a new namespace is closed"}, "exit code 3"},
		"items":     {installed(), []string{items}, []string{"InstallationCheck Kubernetes=OK APIService=Problem Lifecycles=OK Controllers=OK StorageSpace=OK Objects=OK Exemptions=OK Storage=OK"}, "exit code 3"},
		"too old":   {old(installed()), []string{items}, []string{" Kubernetes=Problem "}, "exit code 3"},
		"no leader": {stopped(installed()), []string{items}, []string{" Controllers=Problem "}, "exit code 3"},
		"format":    {installed(), []string{"-o", "name"}, nil, `output format "name", allowed formats are:`},
		"argument":  {installed(), []string{"x"}, nil, `unexpected argument "x"; for example:`},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := test.cluster.Run(t, check.NewCommand, test.args...)
			if err == nil || !strings.Contains(err.Error(), test.err) || errOut != "" {
				t.Errorf("the error is %v\n%s", err, errOut)
			}
			for _, line := range test.lines {
				if !strings.Contains(out, line) {
					t.Errorf("the output is\n%s\nwithout %q", out, line)
				}
			}
			if (out == "") != (test.lines == nil) {
				t.Errorf("the output is\n%s", out)
			}
		})
	}
}
