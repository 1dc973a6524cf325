/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package status_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/status"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const grant = "an administrator can grant this: kubectl nsinit rbac --view --user=USER | kubectl apply -f -"

func marshal(t *testing.T, object any) string {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestList: text is the server's table, and other formats print its objects.
func TestList(t *testing.T) {
	table := metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string"}, {Name: "Waiting For", Type: "string"}, {Name: "Message", Type: "string", Priority: 1}}}
	empty := marshal(t, table)
	table.Rows = []metav1.TableRow{{Cells: []any{"shop", "a.example.com", "creating the index"}}}
	const list = `{"kind":"NamespaceLifecycleList","apiVersion":"nsinit.dev/v1alpha1","metadata":{},"items":[{"metadata":{"name":"shop"}},{"metadata":{"name":"depot"}}]}`
	refusal := apierrors.NewForbidden(v1alpha1.SchemeGroupVersion.WithResource("namespacelifecycles").GroupResource(), "", errors.New(`User "jane" cannot list`)).ErrStatus
	refusal.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	const narrow = "NAME   WAITING FOR\nshop   a.example.com\n"
	for name, test := range map[string]struct {
		code int
		body string
		// accept and selector are asked for.
		accept, selector string
		test             cmdtesting.Test
	}{
		"text": {http.StatusOK, marshal(t, table), "application/json;as=Table;v=v1;g=meta.k8s.io", "status.phase!=Active", cmdtesting.Test{Out: narrow}},
		"all":  {http.StatusOK, marshal(t, table), "application/json;as=Table;v=v1;g=meta.k8s.io", "", cmdtesting.Test{Args: []string{"-A"}, Out: narrow}},
		"wide": {http.StatusOK, marshal(t, table), "application/json;as=Table;v=v1;g=meta.k8s.io", "status.phase!=Active",
			cmdtesting.Test{Args: []string{"-o", "wide"}, Out: "NAME   WAITING FOR     MESSAGE\nshop   a.example.com   creating the index\n"}},
		"nothing": {http.StatusOK, empty, "application/json;as=Table;v=v1;g=meta.k8s.io", "status.phase!=Active", cmdtesting.Test{ErrOut: "No namespace is initializing or terminating.\n"}},
		"names": {http.StatusOK, list, "application/json", "status.phase!=Active",
			cmdtesting.Test{Args: []string{"-o", "name"}, Out: "namespacelifecycle.nsinit.dev/shop\nnamespacelifecycle.nsinit.dev/depot\n"}},
		"fields": {http.StatusOK, list, "application/json", "status.phase!=Active", cmdtesting.Test{Args: []string{"-o", "jsonpath={.items[*].kind} {.kind}"},
			Out: "NamespaceLifecycle NamespaceLifecycle NamespaceLifecycleList"}},
		"forbidden": {http.StatusForbidden, marshal(t, refusal), "application/json;as=Table;v=v1;g=meta.k8s.io", "status.phase!=Active",
			cmdtesting.Test{Err: `User "jane" cannot list; ` + grant + "; for a namespace that you may get, run kubectl nsinit status NAMESPACE"}},
		"another answer": {http.StatusOK, "<html>", "application/json;as=Table;v=v1;g=meta.k8s.io", "status.phase!=Active",
			cmdtesting.Test{Err: "cannot decode the response of nsinit-apiserver"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.test.Cluster = cmdtesting.New()
			test.test.Cluster.Respond(test.code, test.body)
			test.test.Check(t, status.NewCommand)
			request := test.test.Cluster.REST.Req
			if got := request.Header.Get("Accept"); got != test.accept {
				t.Errorf("asks for %s", got)
			}
			if got := request.URL.Query().Get("fieldSelector"); got != test.selector {
				t.Errorf("selects %s", got)
			}
		})
	}
}

// unavailable makes nsinit-apiserver answer every read of a lifecycle with 503.
func unavailable(c *cmdtesting.Cluster) *cmdtesting.Cluster {
	c.Nsinit.PrependReactor("get", "namespacelifecycles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("it is down")
	})
	return c
}

func namespace(changes ...func(*corev1.Namespace)) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "u"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func closed(n *corev1.Namespace) {
	n.Labels = map[string]string{v1alpha1.LabelInitializing: ""}
	n.Status.Conditions = []corev1.NamespaceCondition{{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue, Message: "waiting for\nsomething"}}
}

// lacking is a namespace without a required object.
func lacking(n *corev1.Namespace) {
	n.Status.Conditions = []corev1.NamespaceCondition{{Type: v1alpha1.ConditionReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonObjectsMissing, Message: "waiting for x"}}
}

// initialized is a lifecycle whose initializers are done.
func initialized() *v1alpha1.NamespaceLifecycle {
	l := lifecycle("shop")
	l.Status = v1alpha1.NamespaceLifecycleStatus{Phase: v1alpha1.LifecycleActive, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionInitializing, Status: metav1.ConditionFalse, Message: "all are done"},
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Message: "all are done"},
	}}
	return l
}

func terminating(n *corev1.Namespace) {
	ago := cmdtesting.Ago(0)
	n.DeletionTimestamp, n.Finalizers, n.Status.Phase = &ago, []string{"x/y"}, corev1.NamespaceTerminating
}

func lifecycle(name string) *v1alpha1.NamespaceLifecycle {
	at := func(d time.Duration) *metav1.MicroTime {
		at := metav1.NewMicroTime(cmdtesting.Now().Add(d))
		return &at
	}
	l := &v1alpha1.NamespaceLifecycle{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u", Finalizers: []v1alpha1.FinalizerName{"b.example.com", "kubernetes"}},
		Status: v1alpha1.NamespaceLifecycleStatus{Phase: v1alpha1.LifecycleInitializing,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionInitializing, Status: metav1.ConditionTrue, Message: `waiting for initializer "b.example.com" (2 of 3)`}},
			Initializers: []v1alpha1.InitializerStatus{
				{Name: "a.example.com", State: v1alpha1.InitializerDone, StartTime: at(-time.Minute), EndTime: at(-58 * time.Second), LastActor: "hook"},
				{Name: "b.example.com", State: v1alpha1.InitializerRunning, StartTime: at(-58 * time.Second), Message: "90%\x1b[0m"},
				{Name: "c.example.com", State: v1alpha1.InitializerWaiting},
			}},
	}
	l.Spec.Plan = make([]v1alpha1.PlannedInitializer, 1)
	l.Spec.Plan[0].Name, l.Spec.Plan[0].Finalizer = "a.example.com", true
	return l
}

// ordered is a lifecycle in which d waits for others.
func ordered(after ...string) *v1alpha1.NamespaceLifecycle {
	l := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u", Initializers: &v1alpha1.NamespaceInitializers{}},
		Status: v1alpha1.NamespaceLifecycleStatus{Phase: v1alpha1.LifecycleInitializing, Initializers: []v1alpha1.InitializerStatus{{Name: "d.example.com", State: v1alpha1.InitializerWaiting}}}}
	for _, name := range append([]string{"d.example.com"}, after...) {
		entry := v1alpha1.PlannedInitializer{}
		entry.Name, entry.Ordering = name, &v1alpha1.InitializerOrdering{}
		l.Spec.Plan = append(l.Spec.Plan, entry)
		l.Spec.Initializers.Pending = append(l.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: name})
	}
	l.Spec.Plan[0].Ordering.After = after
	return l
}

// refusing answers requests for some resources with 403.
func refusing(cluster *cmdtesting.Cluster, resources ...string) *cmdtesting.Cluster {
	for _, resource := range resources {
		refuse := func(action clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "shop", errors.New(`User "jane" cannot get`))
		}
		cluster.Core.PrependReactor("get", resource, refuse)
		cluster.Nsinit.PrependReactor("get", resource, refuse)
	}
	return cluster
}

// reporting is a lifecycle whose only initializer has its turn and reports a message.
func reporting(message string) *v1alpha1.NamespaceLifecycle {
	l := ordered()
	l.Status.Initializers[0].State, l.Status.Initializers[0].Message = v1alpha1.InitializerRunning, message
	return l
}

// table is what is shown of reporting.
func table(unserved, message string) string {
	header := "INITIALIZER     STATE     " + strings.Repeat(" ", len(unserved)) + "TOOK     CLEANS UP   LAST ACTOR   MESSAGE\n"
	return header + "d.example.com   Running" + unserved + "   <none>   no          <none>       " + message + "\n"
}

// registering is a configuration with the initializer of reporting.
func registering(status *v1alpha1.RegisteredInitializerStatus) *v1alpha1.NamespaceInitializerConfiguration {
	c := &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Initializers: []v1alpha1.RegisteredInitializer{{Name: "d.example.com"}}}
	if status != nil {
		status.Name = "d.example.com"
		c.Status.Initializers = []v1alpha1.RegisteredInitializerStatus{*status}
	}
	return c
}

// leaving is a lifecycle with one participant that has cleaned up, and one that has not.
func leaving() *v1alpha1.NamespaceLifecycle {
	l := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: new(cmdtesting.Ago(2 * time.Minute)), Finalizers: []string{"x/y"}},
		Spec: v1alpha1.NamespaceLifecycleSpec{NamespaceUID: "u", Finalizers: []v1alpha1.FinalizerName{"b.example.com", "kubernetes"}, Plan: make([]v1alpha1.PlannedInitializer, 1)},
		Status: v1alpha1.NamespaceLifecycleStatus{Phase: v1alpha1.LifecycleTerminating, Initializers: []v1alpha1.InitializerStatus{
			{Name: "a.example.com", State: v1alpha1.InitializerDone, LastActor: "dns"},
			{Name: "b.example.com", State: v1alpha1.InitializerDone, LastActor: "dns", Message: "zone is in use"},
		}}}
	l.Spec.Plan[0].Name, l.Spec.Plan[0].Finalizer = "a.example.com", true
	return l
}

func TestOne(t *testing.T) {
	const initializing = "Namespace shop: Initializing\n  Initializing=True: waiting for something\n"
	reported := metav1.NewMicroTime(cmdtesting.Now())
	const described = `  Initializing=True: waiting for initializer "b.example.com" (2 of 3)
INITIALIZER     STATE     TOOK         CLEANS UP   LAST ACTOR   MESSAGE
a.example.com   Done      2s           done        hook         <none>
b.example.com   Running   58s so far   yes         <none>       90%?[0m
c.example.com   Waiting   <none>       no          <none>       <none>
`
	former := func(n *corev1.Namespace) { n.UID = "another" }
	for name, test := range map[string]cmdtesting.Test{
		"what it waits for": {Cluster: cmdtesting.New(namespace(closed), ordered("a.example.com", "b.example.com")), Args: []string{"shop"}, Out: initializing + `INITIALIZER     STATE     TOOK     CLEANS UP   LAST ACTOR   MESSAGE
d.example.com   Waiting   <none>   no          <none>       waits for a.example.com, b.example.com
`},
		"it waits for many": {Cluster: cmdtesting.New(namespace(closed), ordered("a", "b", "c", "e", "f")), Args: []string{"shop"}, Out: initializing + `INITIALIZER     STATE     TOOK     CLEANS UP   LAST ACTOR   MESSAGE
d.example.com   Waiting   <none>   no          <none>       waits for a, b, c and 2 more
`},
		"its initializers":       {Cluster: cmdtesting.New(namespace(closed), lifecycle("shop")), Args: []string{"shop"}, Out: "Namespace shop: Initializing\n" + described},
		"wide":                   {Cluster: cmdtesting.New(namespace(closed), lifecycle("shop")), Args: []string{"shop", "-o", "wide"}, Out: "Namespace shop: Initializing\n" + described},
		"a removed namespace":    {Cluster: cmdtesting.New(lifecycle("shop")), Args: []string{"shop"}, Out: "Namespace shop: Initializing, the namespace is removed\n" + described},
		"a former namespace":     {Cluster: cmdtesting.New(namespace(former), lifecycle("shop")), Args: []string{"shop"}, Out: "Namespace shop: Initializing, the NamespaceLifecycle is of a former namespace of this name\n" + described},
		"only the lifecycle":     {Cluster: refusing(cmdtesting.New(lifecycle("shop")), "namespaces"), Args: []string{"shop"}, Out: "Namespace shop: Initializing\n" + described},
		"a tenant":               {Cluster: refusing(cmdtesting.New(namespace(closed)), "namespacelifecycles"), Args: []string{"shop"}, Out: "Namespace shop: Initializing\n  Initializing=True: waiting for something\n"},
		"a tenant, terminating":  {Cluster: refusing(cmdtesting.New(namespace(terminating)), "namespacelifecycles"), Args: []string{"shop"}, Out: "Namespace shop: Terminating\n"},
		"a tenant, closed, both": {Cluster: refusing(cmdtesting.New(namespace(closed, terminating)), "namespacelifecycles"), Args: []string{"shop"}, Out: "Namespace shop: Terminating\n  Initializing=True: waiting for something\n"},
		"a tenant who may not get it": {Cluster: refusing(cmdtesting.New(&v1alpha1.AccessibleNamespace{ObjectMeta: namespace(closed, terminating).ObjectMeta}), "namespaces", "namespacelifecycles"),
			Args: []string{"shop"}, Out: "Namespace shop: Terminating\n"},
		"it waits for an object":   {Cluster: cmdtesting.New(namespace(closed, lacking), initialized()), Args: []string{"shop"}, Out: "Namespace shop: Initializing\n  Ready=False: waiting for x\n"},
		"opened without an object": {Cluster: cmdtesting.New(namespace(lacking), initialized()), Args: []string{"shop"}, Out: "Namespace shop: Active\n  Ready=False: waiting for x\n"},
		"text that is not safe": {Cluster: refusing(cmdtesting.New(namespace(func(n *corev1.Namespace) {
			n.Status.Conditions = []corev1.NamespaceCondition{{Type: "a\x1b", Status: "b\n", Message: "c\u202e"}}
		})), "namespacelifecycles"), Args: []string{"shop"}, Out: "Namespace shop: Active\n  a?=b : c?\n"},
		"one message, two conditions": {Cluster: cmdtesting.New(namespace(closed, func(n *corev1.Namespace) {
			n.Status.Conditions = []corev1.NamespaceCondition{
				{Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionTrue, Message: "of the namespace"},
				{Type: v1alpha1.ConditionReady, Status: corev1.ConditionFalse, Message: `waiting for initializer "b.example.com" (2 of 3)`},
				{Type: v1alpha1.ConditionFrozen, Status: corev1.ConditionTrue, Message: "frozen by ann"},
				{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionFalse, Message: "nothing"},
			}
		}), lifecycle("shop")), Args: []string{"shop"}, Out: strings.Replace("Namespace shop: Initializing\n"+described, "Initializing=True: waiting for initializer \"b.example.com\" (2 of 3)",
			"Initializing=True, Ready=False: waiting for initializer \"b.example.com\" (2 of 3)\n  Frozen=True: frozen by ann", 1)},
		"a long message":       {Cluster: cmdtesting.New(namespace(closed), reporting(strings.Repeat("long ", 20))), Args: []string{"shop"}, Out: initializing + table("", strings.Repeat("long ", 11)+"lo...")},
		"a long message, wide": {Cluster: cmdtesting.New(namespace(closed), reporting(strings.Repeat("long ", 20))), Args: []string{"shop", "-o", "wide"}, Out: initializing + table("", strings.Repeat("long ", 20))},
		"no program":           {Cluster: cmdtesting.New(namespace(closed), reporting("no"), registering(nil)), Args: []string{"shop"}, Out: initializing + table(", never served", "no")},
		"a program that stopped": {Cluster: cmdtesting.New(namespace(closed), reporting("no"), registering(&v1alpha1.RegisteredInitializerStatus{ReportTime: &reported, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: metav1.ConditionFalse}}})),
			Args: []string{"shop"}, Out: initializing + table(", not served", "no")},
		"a program": {Cluster: cmdtesting.New(namespace(closed), reporting("no"), registering(&v1alpha1.RegisteredInitializerStatus{ReportTime: &reported})), Args: []string{"shop"}, Out: initializing + table("", "no")},
		"participants": {Cluster: cmdtesting.New(namespace(terminating), leaving()), Args: []string{"shop"}, Out: `Namespace shop: Terminating
INITIALIZER     STATE   TOOK     CLEANS UP   LAST ACTOR   MESSAGE
a.example.com   Done    <none>   done        dns          <none>
b.example.com   Done    <none>   2m so far   dns          zone is in use
`},
		"exempt":   {Cluster: cmdtesting.New(namespace()), Args: []string{"shop"}, Out: "Namespace shop: Active\n"},
		"its name": {Cluster: cmdtesting.New(namespace(), lifecycle("shop")), Args: []string{"shop", "-o", "name"}, Out: "namespacelifecycle.nsinit.dev/shop\n"},
		"a field":  {Cluster: cmdtesting.New(namespace(), lifecycle("shop")), Args: []string{"shop", "-o", "jsonpath={.kind} {.status.phase}"}, Out: "NamespaceLifecycle Initializing"},

		"no namespace":       {Args: []string{"shop"}, Err: `namespace "shop" does not exist`},
		"no namespace, JSON": {Args: []string{"shop", "-o", "json"}, Err: `namespace "shop" does not exist`},
		"no lifecycle, JSON": {Cluster: cmdtesting.New(namespace()), Args: []string{"shop", "-o", "json"}, Err: `namespace "shop" has no NamespaceLifecycle; run kubectl nsinit why shop`},
		"during an outage": {Cluster: unavailable(cmdtesting.New(namespace(closed))), Args: []string{"shop"}, Out: "Namespace shop: Initializing\n  Initializing=True: waiting for something\n",
			Err: "cannot read the NamespaceLifecycle: it is down; to find the cause, run kubectl nsinit check"},
		"neither may be read":      {Cluster: refusing(cmdtesting.New(), "namespaces", "namespacelifecycles"), Args: []string{"shop"}, Err: `namespaces "shop" is forbidden: User "jane" cannot get; ` + grant},
		"it may not be read, YAML": {Cluster: refusing(cmdtesting.New(namespace()), "namespacelifecycles"), Args: []string{"shop", "-o", "yaml"}, Err: `"shop" is forbidden: User "jane" cannot get; ` + grant},
		"no such format":           {Args: []string{"shop", "-o", "xml"}, Err: `output format "xml", allowed formats are: go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,wide,yaml`},
		"two":                      {Args: []string{"shop", "depot"}, Err: "unexpected argument \"depot\"; for example:"},
	} {
		t.Run(name, func(t *testing.T) { test.Check(t, status.NewCommand) })
	}
}

// TestComplete: every namespace has a status.
func TestComplete(t *testing.T) {
	cluster := cmdtesting.New(namespace())
	if diff := cmp.Diff([]string{"shop"}, cluster.Complete(t, status.NewCommand)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := cluster.Complete(t, status.NewCommand, "shop"); len(got) > 0 {
		t.Errorf("offers %v after the only argument", got)
	}
}
