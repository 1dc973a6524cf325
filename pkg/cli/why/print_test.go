/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package why

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

func stuckExample() *diagnosis.Diagnosis {
	hour, minute := metav1.NewTime(noon().Add(-time.Hour)), metav1.NewTime(noon().Add(-150*time.Second))
	d := &diagnosis.Diagnosis{
		TypeMeta:  metav1.TypeMeta{Kind: diagnosis.Kind, APIVersion: diagnosis.APIVersion},
		Namespace: "shop", UID: "u", Phase: diagnosis.Terminating, Since: &minute, State: diagnosis.Stuck,
		Findings: []diagnosis.Finding{
			{Cause: diagnosis.ContentFinalizer, State: diagnosis.Stuck, Message: "things/a has a finalizer", Since: &minute, Controller: &diagnosis.Controller{Name: "app", State: diagnosis.Dead, Evidence: []diagnosis.Evidence{
				{Source: "managedFields", Message: "it set the finalizer"}, {Source: "Lease a/b", Message: "has no holder", Shows: diagnosis.Dead}, {Source: "Deployment a/b", Message: "wants no pods", Shows: diagnosis.Dead}}}, Remedies: []diagnosis.Remedy{
				{Description: "start its controller"}, {Description: "take it off", Command: "kubectl get a | jq '.b -= [\"c\"]'", Risk: "something stays behind"}}},
			{Cause: diagnosis.DeletionProtected, State: diagnosis.Healthy, Message: "by the way"},
		},
		Remaining:   []diagnosis.Resource{{Resource: "things", Version: "v1", Count: 12}},
		Conditions:  []corev1.NamespaceCondition{{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, LastTransitionTime: minute, Reason: "SomeResourcesRemain", Message: "12 things"}},
		NotExamined: []string{"secrets: you may not list them"},
	}
	for i := range 12 {
		d.Remaining[0].Objects = append(d.Remaining[0].Objects, diagnosis.Object{Name: fmt.Sprintf("a-%02d", i), CreationTimestamp: hour})
	}
	d.Remaining[0].Objects[0].DeletionTimestamp, d.Remaining[0].Objects[0].Finalizers, d.Remaining[0].Objects[0].Owners = &minute, []string{"x/y", "z"}, []string{"App/shop"}
	return d
}

func TestText(t *testing.T) {
	const want = `Namespace "shop": Terminating for 2m30s, stuck: a user has to act.

1. STUCK ContentFinalizer, for 2m30s
   things/a has a finalizer
   Its controller: dead ("app")
   - managedFields: it set the finalizer
   - dead: Lease a/b: has no holder
   - dead: Deployment a/b: wants no pods
   Remedies, the safest first:
   - start its controller
   - take it off
         kubectl get a | jq '.b -= ["c"]'
     Risk: something stays behind

2. NOTE DeletionProtected
   by the way

What is left in it:
  RESOURCE   NAME   AGE   DELETED   FINALIZERS   OWNER
  things     a-00   60m   2m30s     x/y,z        App/shop
  things     a-01   60m   <none>    <none>       <none>
  things     a-02   60m   <none>    <none>       <none>
  things     a-03   60m   <none>    <none>       <none>
  things     a-04   60m   <none>    <none>       <none>
  things     a-05   60m   <none>    <none>       <none>
  things     a-06   60m   <none>    <none>       <none>
  things     a-07   60m   <none>    <none>       <none>
  things     a-08   60m   <none>    <none>       <none>
  things     a-09   60m   <none>    <none>       <none>
  things     and 2 more

Its conditions:
  TYPE                        STATUS   AGE     REASON                MESSAGE
  NamespaceContentRemaining   True     2m30s   SomeResourcesRemain   12 things

Not examined:
  secrets: you may not list them
`
	var out bytes.Buffer
	o := &Options{Base: cmdutil.Base{Clients: &cmdutil.Clients{ServerClock: testingclock.NewFakeClock(noon())}}}
	if err := o.text(&out, stuckExample()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEscapes: text that tenants choose cannot control the terminal.
func TestEscapes(t *testing.T) {
	const escape = "\x1b[2J"
	d := stuckExample()
	first := &d.Remaining[0].Objects[0]
	first.Owners, first.Finalizers = []string{"App/" + escape}, []string{escape}
	d.Findings[0].Message, d.Conditions[0].Reason, d.Conditions[0].Type = escape, escape, escape
	d.Findings[0].Controller = &diagnosis.Controller{Name: escape, State: diagnosis.Dead, Evidence: []diagnosis.Evidence{{Source: "Pod a/" + escape, Message: escape}}}
	var out bytes.Buffer
	o := &Options{Base: cmdutil.Base{Clients: &cmdutil.Clients{ServerClock: testingclock.NewFakeClock(noon())}}}
	if err := o.text(&out, d); err != nil {
		t.Fatal(err)
	}
	list := &diagnosis.FixList{Items: []diagnosis.Fix{{Description: escape, Controller: d.Findings[0].Controller, Requests: []diagnosis.Request{{Body: escape}}}}}
	if err := o.fixes(&out, list); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out.Bytes(), []byte("\x1b")) || !strings.Contains(out.String(), "   - Pod a/?[2J: ?[2J\n   It sends:") {
		t.Errorf("it prints:\n%q", out.String())
	}
}

// TestLines: text from the cluster adds no line to what is printed, and no character that a terminal interprets.
func TestLines(t *testing.T) {
	o := &Options{Base: cmdutil.Base{Clients: &cmdutil.Clients{ServerClock: testingclock.NewFakeClock(noon())}}}
	render := func(text func() string) string {
		d := stuckExample()
		object := &d.Remaining[0].Objects[0]
		object.Name, object.Owners, object.Finalizers = text(), []string{text()}, []string{text()}
		condition := &d.Conditions[0]
		condition.Type, condition.Status, condition.Reason, condition.Message = corev1.NamespaceConditionType(text()), corev1.ConditionStatus(text()), text(), text()
		d.Remaining[0].Resource, d.NotExamined = text(), []string{text()}
		d.Findings[0].Message, d.Findings[0].Controller = text(), &diagnosis.Controller{Name: text(), State: diagnosis.Dead, Evidence: []diagnosis.Evidence{{Source: text(), Message: text()}}}
		fixes := &diagnosis.FixList{Items: []diagnosis.Fix{{Description: text(), Controller: d.Findings[0].Controller, Requests: []diagnosis.Request{{Path: text(), Body: text()}}}}}
		var out bytes.Buffer
		for _, err := range []error{o.text(&out, d), o.fixes(&out, fixes), o.table(&out, &diagnosis.List{Items: []*diagnosis.Diagnosis{d}, Cluster: d.Findings, NotExamined: d.NotExamined})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return out.String()
	}
	want := strings.Count(render(func() string { return "a" }), "\n")
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("a \t\r\n\v\f\x1b\x7f\u0085\u009b\u2028\u2029\u202e\u2066"))), rapid.Just("a\xffb"))
		got := render(func() string { return texts.Draw(t, "text") })
		if strings.Count(got, "\n") != want || got != printable.Lines(got) {
			t.Errorf("%d lines, want %d:\n%q", strings.Count(got, "\n"), want, got)
		}
	})
}

// TestMachineReadable: what is printed can be read back, and commands stay as they are.
func TestMachineReadable(t *testing.T) {
	for name, read := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(data []byte, into any) error { return yaml.UnmarshalStrict(data, into) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			flags, d := cmdutil.NewReportFlags(), stuckExample()
			flags.OutputFormat = &name
			if err := flags.Print(&out, d, nil); err != nil {
				t.Fatal(err)
			}
			var got diagnosis.Diagnosis
			if err := read(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(d, &got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
