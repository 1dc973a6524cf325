/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package why_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/why"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
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
			Initializers: &v1alpha1.NamespaceInitializers{Pending: []v1alpha1.NamespaceInitializer{{Name: "a.example.com"}}}},
			Status: v1alpha1.NamespaceLifecycleStatus{Initializers: []v1alpha1.InitializerStatus{{Name: "a.example.com", StartTime: &turn}},
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionInitializing, Status: metav1.ConditionTrue, Message: "waiting for a.example.com"}}}},
	)
	if err := cluster.APIs.Tracker().Add(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1alpha1.nsinit.dev"},
		Spec:   apiregistrationv1.APIServiceSpec{Group: "nsinit.dev", Version: "v1alpha1", Service: &apiregistrationv1.ServiceReference{Namespace: "nsinit-system"}},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue}}}}); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestWatch: a line or an object is printed for each change, until the namespace is removed or the command is interrupted.
func TestWatch(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		// interrupted ends the context at the third read. Otherwise, the namespace is removed then.
		interrupted bool
		out         []string
		err         string
	}{
		"one":             {[]string{"closed", "--watch"}, false, []string{"TIME", "12:10:00", "12:10:10", "12:10:10"}, ""},
		"interrupted":     {[]string{"closed", "--watch"}, true, []string{"TIME", "12:10:00"}, "exit code 2"},
		"all":             {[]string{"--all", "--watch"}, true, []string{"TIME", "12:10:00"}, "exit code 2"},
		"a stream":        {[]string{"closed", "--watch", "--output=jsonpath={.kind} {.namespace} {.phase} {.state}{'\\n'}"}, false, []string{"NamespaceDiagnosis closed Initializing Waiting", "NamespaceDiagnosis closed Gone Healthy"}, ""},
		"open":            {[]string{"open", "--watch", "--output=jsonpath={.state}"}, false, []string{"Healthy"}, ""},
		"none":            {[]string{"none", "--watch"}, false, nil, `namespace "none" does not exist`},
		"with a deletion": {[]string{"open", "--watch", "--if-deleted"}, false, nil, "give only one of --watch, --if-deleted and --fix"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := waiting(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cluster.Context = ctx
			reads := 0
			cluster.Core.PrependReactor("*", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if reads++; reads == 3 && test.interrupted {
					cancel()
				} else if reads == 3 {
					for _, err := range []error{cluster.Core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "closed"),
						cluster.Nsinit.Tracker().Delete(v1alpha1.SchemeGroupVersion.WithResource("namespacelifecycles"), "", "closed")} {
						if err != nil {
							t.Error(err)
						}
					}
				}
				return false, nil, nil
			})
			out, errOut, err := cluster.Run(t, why.NewCommand, test.args...)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) || errOut != "" {
				t.Errorf("the error is %v, %s", err, errOut)
			}
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			if out == "" {
				lines = nil
			}
			if !slices.EqualFunc(lines, test.out, strings.HasPrefix) {
				t.Errorf("the output is\n%s", out)
			}
		})
	}
}

// TestWatchNotExamined: a namespace that cannot be read does not end the watch, and is reported once.
func TestWatchNotExamined(t *testing.T) {
	cluster := waiting(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cluster.Context = ctx
	lists := 0
	cluster.Core.PrependReactor("*", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() == "list" {
			if lists++; lists == 3 {
				cancel()
			}
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "closed", fmt.Errorf("attempt %d", lists))
	})
	out, errOut, err := cluster.Run(t, why.NewCommand, "--all", "--watch")
	const want = `not examined, retrying: namespace "closed": namespaces "closed" is forbidden: attempt 1` + "\n"
	if out != "" || errOut != want || err != nil {
		t.Errorf("the output is %q, %q, %v", out, errOut, err)
	}
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
		"patience":       {[]string{"open", "--patience=-1s"}, "", `invalid argument "-1s" for "--patience" flag: must not be negative`},
		"all":            {[]string{"--all"}, "NAMESPACE   PHASE", "exit code 2"},
		"all, fields":    {[]string{"--all", "--output=jsonpath={.kind} {.namespaces} {.items[*].namespace}"}, "NamespaceDiagnosisList 2 closed", "exit code 2"},
		"all, and one":   {[]string{"--all", "open"}, "", `unexpected argument "open": --all is for every namespace`},
		"if deleted":     {[]string{"open", "--if-deleted"}, `Namespace "open": Active for 60s. A deletion would not be blocked.`, ""},
		"all, deleted":   {[]string{"--all", "--if-deleted"}, "", "--if-deleted and --fix are for one namespace: give its name instead of --all"},
		"no arguments":   {[]string{}, "", "the argument NAMESPACE is missing; for example:"},
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
