/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// gated is a pod that waits for initializers since some time.
func gated(name string, since time.Duration, initializers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: *ago(since)}}
	for _, initializer := range initializers {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.PendingPrefix + initializer})
	}
	return pod
}

// labelled is the metadata of a Job that waits for an initializer since some time.
func labelled(name string, since time.Duration, initializer string) *metav1.PartialObjectMetadata {
	job := object("Job", name, func(m *metav1.ObjectMeta) {
		m.CreationTimestamp, m.Labels = *ago(since), map[string]string{v1alpha1.PendingPrefix + initializer: "0"}
	})
	job.APIVersion = batchv1.SchemeGroupVersion.String()
	return job
}

// scans is a configuration. A program last reported some time ago. A negative time stands for never.
func scans(ago time.Duration, served metav1.ConditionStatus) v1alpha1.InitializerConfiguration {
	configuration := v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "20-scan"}, Initializers: []v1alpha1.Initializer{{Name: "scan.example.com"}}}
	if ago >= 0 {
		configuration.Status.Initializers = []v1alpha1.RegisteredInitializerStatus{{Name: "other.example.com"}, {Name: "scan.example.com", Reporter: "system:serviceaccount:scans:hook",
			ReportTime: &metav1.MicroTime{Time: now().Add(-ago)}, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: served}}}}
	}
	return configuration
}

// objectCases are cases of TestRules.
func objectCases() map[string]ruleCase {
	waiting := func(configurations []v1alpha1.InitializerConfiguration, objects ...metav1.Object) Observation {
		return Observation{Installation: installed(nil, absent("namespacelifecycles")), Namespace: named(closed, open), ObjectConfigurations: answer(configurations, nil), Objects: objects}
	}
	// unread is an observation of a user who could not list the configurations.
	unread := func(installation Installation, err error, age time.Duration) Observation {
		return Observation{Installation: installation, Namespace: named(closed, open), ObjectConfigurations: Answer[[]v1alpha1.InitializerConfiguration]{Err: err},
			Objects: []metav1.Object{gated("p", age, "scan.example.com"), labelled("j", age, "scan.example.com")}}
	}
	unregistered := []string{`waiting for initializer "scan.example.com": pods/p, jobs/j; no InitializerConfiguration registers the initializer`}
	never, served, dead := scans(-1, ""), scans(5*time.Second, metav1.ConditionTrue), scans(3*time.Minute, metav1.ConditionFalse)
	pods := "kubectl --namespace scans get pods"
	both := v1alpha1.InitializerConfiguration{Initializers: []v1alpha1.Initializer{{Name: "a.example.com"}, {Name: "b.example.com"}}}
	release := []string{
		`kubectl --namespace ns patch pods/p --type=merge --patch='{"spec":{"schedulingGates":null}}'`, "kubectl --namespace ns label jobs/j initializers.nsinit.dev/scan.example.com-",
	}
	return map[string]ruleCase{
		"objects that do not wait": {waiting([]v1alpha1.InitializerConfiguration{dead}, gated("p", time.Hour), object("Job", "j")), nil, nil, nil},
		"objects whose initializer runs": {waiting([]v1alpha1.InitializerConfiguration{served}, gated("q", time.Hour, "scan.example.com", "b.example.com"), gated("p", 2*time.Hour, "scan.example.com"), labelled("j", time.Minute, "scan.example.com")),
			[]string{"Waiting ObjectInitializerPending"}, []string{`waiting for initializer "scan.example.com": pods/p, pods/q, jobs/j; a program serves the initializer: user "system:serviceaccount:scans:hook" last reported 5s ago`},
			[]string{pods, "kubectl describe initializerconfiguration 20-scan", release[0], release[1]}},
		"objects whose initializer died": {waiting([]v1alpha1.InitializerConfiguration{never, dead}, gated("p", 2*time.Minute, "scan.example.com"), labelled("j", time.Minute, "scan.example.com")), []string{"Stuck ObjectInitializerPending"},
			[]string{`no program serves the initializer: user "system:serviceaccount:scans:hook" last reported 3m ago`}, append(release, pods)},
		"an initializer that is registered twice": {waiting([]v1alpha1.InitializerConfiguration{dead, served, never}, gated("p", time.Hour, "scan.example.com")), []string{"Waiting ObjectInitializerPending"}, nil, nil},
		"new objects, and two initializers that never reported": {waiting([]v1alpha1.InitializerConfiguration{both}, gated("p", time.Second, "a.example.com", "b.example.com"), labelled("j", time.Hour, "b.example.com")),
			[]string{"Stuck ObjectInitializerPending", "Waiting ObjectInitializerPending"}, []string{
				`waiting for initializer "a.example.com": pods/p; no program has ever reported that it serves the initializer`, `waiting for initializer "b.example.com": jobs/j; no program has ever`,
			}, nil},
		"objects whose initializer is not registered": {waiting([]v1alpha1.InitializerConfiguration{both}, gated("p", time.Second, "scan.example.com"), labelled("j", time.Second, "scan.example.com")), []string{"Stuck ObjectInitializerPending"}, unregistered, release},
		"objects that wait, and nsinit was removed":   {unread(bare(), absent("initializerconfigurations"), time.Second), []string{"Stuck ObjectInitializerPending"}, unregistered, release},
		"objects that wait during an outage": {unread(withoutRegistration(), absent("initializerconfigurations"), time.Second), []string{"Waiting ObjectInitializerPending"},
			[]string{`pods/p, jobs/j; it is not known whether a program serves the initializer: initializerconfigurations "ns" not found`}, release},
		"objects, and a tenant who may not list configurations": {unread(installed(nil, forbidden("no")), forbidden("no"), time.Second), []string{"Waiting ObjectInitializerPending"},
			[]string{`pods/p, jobs/j; it is not known whether a program serves the initializer: no`}, release},
		"old objects, and a tenant who may not list configurations": {unread(installed(nil, forbidden("no")), forbidden("no"), time.Hour), []string{"Stuck ObjectInitializerPending"}, nil, release},
	}
}

// TestUnsafeReporter: a reporter is quoted in the message of a finding, and is no part of a command.
func TestUnsafeReporter(t *testing.T) {
	for _, reporter := range []string{"system:serviceaccount:$(reboot):hook", "system:serviceaccount:a\x1b[31m:hook", "$(reboot)\x1b[31m\n\u202e"} {
		configuration, namespaces := scans(time.Hour, metav1.ConditionFalse), reports(time.Hour, metav1.ConditionFalse)
		configuration.Status.Initializers[1].Reporter, namespaces[1].Status.Initializers[0].Reporter = reporter, reporter
		o := Observation{Installation: installed(lifecycle(registered), nil), Namespace: named(closed), Configurations: namespaces,
			ObjectConfigurations: answer([]v1alpha1.InitializerConfiguration{configuration}, nil), Objects: []metav1.Object{gated("p", time.Hour, "scan.example.com")}}
		for _, f := range append(waitingObjects(o), o.served("b.example.com")...) {
			if f.Message != printable.Line(f.Message) || !strings.Contains(f.Message, "user "+strconv.Quote(reporter)+" last reported") {
				t.Errorf("%s: message %q", f.Cause, f.Message)
			}
			for _, remedy := range f.Remedies {
				if strings.Contains(remedy.Command, "reboot") || strings.Contains(remedy.Command, "get pods") || remedy.Command != printable.Line(remedy.Command) {
					t.Errorf("%s: reporter %q: command %q", f.Cause, reporter, remedy.Command)
				}
			}
		}
	}
}

// TestObserveObjects: pods and Jobs are read as far as the user may list them, and configurations only if an object waits.
func TestObserveObjects(t *testing.T) {
	refuse := func(resource string) func(string, string, string) error {
		return refuseOnly("list", resource, forbidden("no"))
	}
	configuration, waits := scans(time.Second, metav1.ConditionTrue), `waiting for initializer "scan.example.com": `
	for name, test := range map[string]struct {
		phase      func(*corev1.Namespace)
		apis       []runtime.Object
		registered []runtime.Object
		refuses    func(verb, resource, name string) error
		ifDeleted  bool
		// want is the beginning of the message, or of what is not examined.
		want string
		// configurations and pods are how often they are listed.
		configurations, pods int
	}{
		"both":                    {phase: open, want: waits + "jobs/j, pods/p;", configurations: 1, pods: 1},
		"a closed namespace":      {phase: closed, want: waits + "jobs/j, pods/p;", configurations: 1, pods: 1},
		"no configuration":        {phase: open, registered: []runtime.Object{}, want: waits + "jobs/j, pods/p; no InitializerConfiguration registers", configurations: 1, pods: 1},
		"nsinit is not installed": {phase: open, apis: []runtime.Object{apiService("a.example.com", "v1")}, refuses: refuseOnly("list", "initializerconfigurations", absent("")), want: waits + "jobs/j, pods/p; no InitializerConfiguration registers", configurations: 1, pods: 1},
		"no right to list them":   {phase: open, refuses: refuse("initializerconfigurations"), want: waits + "jobs/j, pods/p; it is not known whether a program serves the initializer: ", configurations: 1, pods: 1},
		"no right to list pods":   {phase: open, refuses: refuse("pods"), want: waits + "jobs/j;", configurations: 1},
		"no right to list Jobs":   {phase: open, refuses: refuse("jobs"), want: waits + "pods/p;", configurations: 1, pods: 1},
		"no right to list objects": {phase: open, refuses: func(verb, resource, name string) error {
			return errors.Join(refuse("pods")(verb, resource, name), refuse("jobs")(verb, resource, name))
		}},
		"nsinit is down":            {phase: open, refuses: refuseOnly("list", "initializerconfigurations", errors.New("it never answers")), want: waits + "jobs/j, pods/p; it is not known whether a program serves the initializer: it never answers", configurations: 1, pods: 1},
		"the namespace terminates":  {phase: young},
		"what a deletion waits for": {phase: open, ifDeleted: true, pods: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if test.apis == nil {
				test.apis = []runtime.Object{nsinitAPI(apiregistrationv1.ConditionTrue)}
			}
			if test.registered == nil {
				test.registered = []runtime.Object{&configuration}
			}
			d := world{
				namespace: terminating(closed, test.phase), apis: test.apis, refuses: test.refuses, lifecycles: test.registered,
				core:    []runtime.Object{gated("p", time.Minute, "scan.example.com"), gated("free", time.Minute)},
				content: []runtime.Object{object("Pod", "p"), labelled("j", time.Minute, "scan.example.com")},
				lists: append(coreResources(), &metav1.APIResourceList{GroupVersion: batchv1.SchemeGroupVersion.String(),
					APIResources: []metav1.APIResource{{Name: "jobs", Kind: "Job", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}}}}),
			}.diagnoser(t)
			diagnose := d.Diagnose
			if test.ifDeleted {
				diagnose = d.DiagnoseDeletion
			}
			found, err := diagnose(t.Context(), "ns")
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range found.Findings {
				if f.Cause == ObjectInitializerPending {
					got += f.Message
				}
			}
			if found.Phase == Active {
				got += strings.Join(found.NotExamined, "")
			}
			if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if configurations, pods := lists(t, d.Nsinit, "initializerconfigurations"), lists(t, d.Core, "pods"); configurations != test.configurations || pods != test.pods {
				t.Errorf("configurations are listed %d times, pods %d times", configurations, pods)
			}
		})
	}
}
