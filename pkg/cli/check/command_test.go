/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	baseversion "k8s.io/component-base/version"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/cli/check"
	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// installed returns a cluster in which nsinit runs. Its policies are missing.
func installed() *cmdtesting.Cluster {
	holder, seconds, renewed := "one", int32(15), metav1.NewMicroTime(cmdtesting.Now())
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: name}}
	}
	cluster := cmdtesting.New(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nsinit-system"}}, configMap("nsinit-exemptions"), configMap("nsinit-storage"), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: "nsinit-controller-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}})
	versioned(cluster)
	cluster.Core.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelInitializing: ""}}}, nil
	})
	cluster.Respond(http.StatusOK, "{}")
	return cluster
}

func versioned(cluster *cmdtesting.Cluster) *cmdtesting.Cluster {
	cluster.Core.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.36.0"}
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

// exempting returns a cluster with a list of exemptions, which does not close the namespaces of the user me.
func exempting(list map[string]string) *cmdtesting.Cluster {
	cluster := installed()
	cluster.Core.PrependReactor("get", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		return name == "nsinit-exemptions", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: name}, Data: list}, nil
	})
	cluster.Core.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nsinit-check-abcde", GenerateName: "nsinit-check-"}}, nil
	})
	cluster.Core.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "me", Groups: []string{"mine"}}}}, nil
	})
	return cluster
}

// holding returns an installation with a pod that waits for an initializer.
func holding() *cmdtesting.Cluster {
	cluster := installed()
	cluster.Core.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.NewTime(cmdtesting.Now().Add(-time.Hour)),
			Labels: map[string]string{v1alpha1.LabelInitializing: "true"}},
			Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: v1alpha1.PendingPrefix + "scan.example.com"}}}}}}, nil
	})
	return cluster
}

// without returns an installation without a ConfigMap.
func without(name string) *cmdtesting.Cluster {
	cluster := installed()
	_ = cluster.Core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "nsinit-system", name)
	return cluster
}

// TestCheckNamespace: the command says whether a namespace would be closed, and by which line it is exempt.
func TestCheckNamespace(t *testing.T) {
	list := map[string]string{"namespaces": "kube-system", "namePrefixes": "kube-", "users": "operator", "groups": "# ours\noperators\nsystem:serviceaccounts:olm", "onlyGroups": "mine\ndevs"}
	const configMap = "ConfigMap nsinit-system/nsinit-exemptions"
	for name, test := range map[string]struct {
		list map[string]string
		args []string
		want string
	}{
		"by default": {list, []string{"shop"}, `namespace "shop", created by user "me" of groups "mine", is closed until it is initialized: no line of ` + configMap + " exempts it\n"},
		"a creator":  {list, []string{"shop", "--creator=eve", "--groups=devs"}, `namespace "shop", created by user "eve" of groups "devs", "system:authenticated", is closed until it is initialized: no line of ` + configMap + " exempts it\n"},
		"a prefix":   {list, []string{"kube-tool", "--creator=eve"}, `namespace "kube-tool", created by user "eve" of groups "system:authenticated", is exempt by ` + configMap + `: line 1 of namePrefixes, "kube-"` + "\n"},
		"a user":     {list, []string{"shop", "--creator=operator"}, `namespace "shop", created by user "operator" of groups "system:authenticated", is exempt by ` + configMap + `: line 1 of users, "operator"` + "\n"},
		"a group":    {list, []string{"shop", "--creator=eve", "--groups=devs,operators"}, `namespace "shop", created by user "eve" of groups "devs", "operators", "system:authenticated", is exempt by ` + configMap + `: line 2 of groups, "operators"` + "\n"},
		"an account": {list, []string{"shop", "--creator=system:serviceaccount:olm:operator"}, `namespace "shop", created by user "system:serviceaccount:olm:operator" of groups "system:serviceaccounts", "system:serviceaccounts:olm", "system:authenticated", is exempt by ` + configMap + `: line 3 of groups, "system:serviceaccounts:olm"` + "\n"},
		"no group":   {list, []string{"shop", "--creator=eve"}, `namespace "shop", created by user "eve" of groups "system:authenticated", is exempt by ` + configMap + ": no group of the creator is in onlyGroups\n"},
		"json":       {list, []string{"shop", "--creator=operator", "--output=jsonpath={.kind} {.closed} {.exemptBy.key} {.exemptBy.line}"}, "CreationCheck false users 1"},
		"malformed": {map[string]string{"users": "*"}, []string{"shop", "--creator=eve"}, `namespace "shop", created by user "eve" of groups "system:authenticated", is closed until it is initialized: no line of ` + configMap + " exempts it\n" +
			`without effect: line 1 of users, "*": it is not the name of a user; give one name on each line, without a dash, quotes, wildcards or a comment` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			cmdtesting.Test{Cluster: exempting(test.list), Args: test.args, Out: test.want}.Check(t, check.NewCommand)
		})
	}
}

// ofVersion returns an installation whose nsinit-apiserver has another version than the plugin.
func ofVersion(version string) *cmdtesting.Cluster {
	cluster := installed()
	cluster.Respond(http.StatusOK, `{"info":{"version":"`+version+`"}}`)
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
		"text": {installed(), nil, []string{"CHECK ", "Kubernetes     OK        v1.36.0", "Controllers    OK        one holds Lease", "remedy: ",
			"APIService     Problem   the API of nsinit is not registered (APIService v1alpha1.nsinit.dev does not exist), because no pod of nsinit-apiserver is ready", "Gate           OK        a new namespace is closed"}, "exit code 3"},
		"items":   {installed(), []string{items}, []string{"InstallationCheck Kubernetes=OK Programs=OK APIService=Problem Lifecycles=OK Controllers=OK StorageSpace=OK Objects=OK Exemptions=OK Storage=OK"}, "exit code 3"},
		"nothing": {versioned(cmdtesting.New()), nil, []string{"Installation   Problem   nsinit is not installed: namespace nsinit-system, APIService v1alpha1.nsinit.dev and policy nsinit-guard-create do not exist\n", "remedy: install nsinit (docs/install.md)\n"}, "exit code 3"},
		"no exemptions": {without("nsinit-exemptions"), nil, []string{"Exemptions     Problem   ConfigMap nsinit-system/nsinit-exemptions is missing: without it, no namespace can be created",
			"remedy: apply the overlay"}, "exit code 3"},
		"no storage": {without("nsinit-storage"), nil, []string{"Storage        Problem   ConfigMap nsinit-system/nsinit-storage is missing: without it, nsinit-apiserver cannot distinguish",
			"remedy: read the log of nsinit-apiserver, which creates the ConfigMap"}, "exit code 3"},
		"too old":          {old(installed()), []string{items}, []string{" Kubernetes=Problem "}, "exit code 3"},
		"no leader":        {stopped(installed()), []string{items}, []string{" Controllers=Problem "}, "exit code 3"},
		"the same version": {ofVersion(baseversion.Get().GitVersion), []string{items}, []string{" Policies=Problem "}, "exit code 3"},
		"another version":  {ofVersion("v9.9.9"), []string{items}, []string{" Policies=Warning "}, "exit code 3"},
		"its remedy":       {ofVersion("v9.9.9"), nil, []string{"remedy: install the plugin of version v9.9.9, which is that of nsinit-apiserver"}, "exit code 3"},
		"before": {versioned(cmdtesting.New()), []string{"--pre"}, []string{"Kubernetes      OK        v1.36.0", "Aggregation     Problem   the aggregation layer is not configured: ",
			"remedy: set these flags and --proxy-client-cert-file of kube-apiserver: ", "Leftovers       OK        no former installation was found"}, "exit code 3"},
		"before, items":   {versioned(cmdtesting.New()), []string{"--pre", items}, []string{"InstallationCheck Kubernetes=OK Policies=Problem Aggregation=Problem APIServices=OK Permissions=Warning Namespace=OK Webhooks=OK OtherPolicies=OK Leftovers=OK Storage=Warning"}, "exit code 3"},
		"before, wait":    {installed(), []string{"--pre", "--wait"}, nil, "--pre checks the cluster before the installation: omit --wait and the name of a namespace; for example:"},
		"before, name":    {installed(), []string{"--pre", "shop"}, nil, "--pre checks the cluster before the installation"},
		"format":          {installed(), []string{"-o", "name"}, nil, `output format "name", allowed formats are:`},
		"argument":        {installed(), []string{"x", "y"}, nil, `unexpected argument "y"; for example:`},
		"no wait":         {installed(), []string{"--timeout=1m"}, nil, "--timeout needs --wait; for example:"},
		"wait for a name": {installed(), []string{"shop", "--wait"}, nil, `--wait waits for the installation: omit the name "shop", or omit --wait; for example:`},
		"no name":         {installed(), []string{"--creator=eve"}, nil, `--creator and --groups need the name of a namespace; for example:`},
		"malformed": {exempting(map[string]string{"users": "# us\n- eve", "user": ""}), nil, []string{`Exemptions     Warning   ConfigMap nsinit-system/nsinit-exemptions: line 2 of users, "- eve": `,
			`nsinit-exemptions: key "user" is unknown`, "remedy: kubectl --namespace nsinit-system edit configmap nsinit-exemptions"}, "exit code 3"},
		"the caller is exempt": {exempting(map[string]string{"users": "me"}), nil, []string{`Exemptions     OK        ConfigMap nsinit-system/nsinit-exemptions exists; entries: 1`,
			`Gate           OK        a namespace that you create is not closed, because user "me" is exempt by ConfigMap nsinit-system/nsinit-exemptions: line 1 of users, "me"`}, "exit code 3"},
		"pods wait, but nothing guards them": {holding(), nil, []string{
			`PodsAndJobs    Problem   pods and Jobs that wait for initializer "scan.example.com": 1, the first since 60m (shop/web): no program serves it`,
			"PodsAndJobs    Problem   policy nsinit-objects-guard does not exist: pods and Jobs wait, but each user who may update them can start them",
			"docs/install.md), with objects"}, "exit code 3"},
		"it is not": {exempting(map[string]string{"users": "eve"}), nil, []string{"Gate           Problem   a new namespace is not closed"}, "exit code 3"},
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

// TestCheckWait: the command prints what it waits for when that changes, and names it at its end.
func TestCheckWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, available := installed(), int32(-1)
		cluster.Clients.Clock = clock.RealClock{} // of the bubble
		cluster.Core.PrependReactor("list", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			available = min(available+1, 2)
			return true, &appsv1.DeploymentList{Items: []appsv1.Deployment{{ObjectMeta: metav1.ObjectMeta{Name: "cm", Labels: map[string]string{"app.kubernetes.io/part-of": "nsinit"}}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))},
				Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: available}}}}, nil
		})
		out, errOut, err := cluster.Run(t, check.NewCommand, "--wait", "--timeout=1m")
		if err == nil || !strings.Contains(err.Error(), "exit code 3") {
			t.Errorf("the error is %v", err)
		}
		rest := errOut
		for _, says := range []string{
			"waiting for Programs: deployment/cm has 0 of 2 pods available\n",
			"waiting for Programs: deployment/cm has 1 of 2 pods available, 2 of the newest version\n",
			"waiting for APIService: the API of nsinit is not registered (APIService v1alpha1.nsinit.dev does not exist), because no pod of nsinit-apiserver is ready",
			"error: the installation is not complete after 1m0s, because of ",
		} {
			_, after, found := strings.Cut(rest, says)
			if !found {
				t.Errorf("there is no %q, or in another order, in\n%s", says, errOut)
			}
			rest = after
		}
		if strings.Count(errOut, "waiting for APIService") != 1 || !strings.Contains(out, "Programs       OK        deployment/cm has 2 of 2 pods available") {
			t.Errorf("the output is\n%s%s", errOut, out)
		}
	})
}
