/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package why_test

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/why"
)

// waiting returns a cluster in which the namespace closed waits for an initializer.
func waiting(t *testing.T) *cmdtesting.Cluster {
	t.Helper()
	turn := metav1.NewMicroTime(cmdtesting.Now().Add(-30 * time.Second))
	holder, seconds, renewed := "one", int32(15), metav1.NewMicroTime(cmdtesting.Now())
	cluster := cmdtesting.New(
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "nsinit-system", Name: "nsinit-controller-manager"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open", UID: "o", CreationTimestamp: cmdtesting.Ago(time.Minute)},
			Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "closed", UID: "c", CreationTimestamp: cmdtesting.Ago(time.Minute), Labels: map[string]string{v1alpha1.LabelInitializing: ""}}},
		&v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "closed"}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "c",
			Plan:         []v1alpha1.PlannedInitializer{{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "a.example.com"}}},
			Initializers: &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: "a.example.com", TurnStartTime: &turn}}}},
			Status: v1alpha1.NamespaceLifecycleStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionInitializing, Status: metav1.ConditionTrue, Message: "waiting for a.example.com"}}}},
	)
	if err := cluster.APIs.Tracker().Add(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1alpha1.nsinit.dev"},
		Spec:   apiregistrationv1.APIServiceSpec{Group: "nsinit.dev", Version: "v1alpha1", Service: &apiregistrationv1.ServiceReference{}},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue}}}}); err != nil {
		t.Fatal(err)
	}
	return cluster
}

func TestWhy(t *testing.T) {
	const fields = "--output=jsonpath={.kind} {.namespace} {.phase} {.state}"
	for name, test := range map[string]struct {
		args []string
		// out is the beginning of the output, and err a part of the error.
		out, err string
	}{
		"open":           {[]string{"open"}, `Namespace "open": Active for 60s, healthy: it waits for nothing.`, ""},
		"closed":         {[]string{"closed"}, `Namespace "closed": Initializing for 60s, waiting: `, "exit code 2"},
		"fields":         {[]string{"closed", fields}, "NamespaceDiagnosis closed Initializing Waiting", "exit code 2"},
		"no namespace":   {[]string{"none"}, "", `namespace "none" does not exist`},
		"no such format": {[]string{"open", "-o", "name"}, "", `output format "name", allowed formats are:`},
		"patience":       {[]string{"open", "--patience=-1s"}, "", `invalid argument "-1s" for "--patience" flag: give a duration that is not negative`},
		"all":            {[]string{"--all"}, "NAMESPACE   PHASE", "exit code 2"},
		"all, fields":    {[]string{"--all", "--output=jsonpath={.kind} {.namespaces} {.items[*].namespace}"}, "NamespaceDiagnosisList 2 closed", "exit code 2"},
		"all, and one":   {[]string{"--all", "open"}, "", `unexpected argument "open": --all is for every namespace`},
		"if deleted":     {[]string{"open", "--if-deleted"}, `Namespace "open": Active for 60s. A deletion would not be blocked.`, ""},
		"all, deleted":   {[]string{"--all", "--if-deleted"}, "", "--if-deleted is for one namespace: give its name instead of --all"},
		"no arguments":   {nil, "", "the argument NAMESPACE is missing; for example:"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := waiting(t).Run(t, why.NewCommand, test.args...)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("the error is %v", err)
			}
			if !strings.HasPrefix(out, test.out) || (out == "") != (test.out == "") || errOut != "" {
				t.Errorf("the output is\n%s\n%s", out, errOut)
			}
		})
	}
}
