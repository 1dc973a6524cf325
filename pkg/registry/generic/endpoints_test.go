/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apis/nsinit"
	"github.com/nsinit/nsinit/pkg/apiserver/scheme"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/pkg/registry/generic"
	"github.com/nsinit/nsinit/pkg/registry/nsinit/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// outcome is what becomes of a change that is sent to an endpoint.
type outcome string

const (
	changed outcome = "changed" // the endpoint takes it
	kept    outcome = "kept"    // the endpoint ignores it
	refused outcome = "refused" // the endpoint answers with an error
)

// change is a change of a part by a client that may do everything.
type change[V any] struct {
	part string
	do   func(V)
	// owner and others are the outcomes at the endpoint that owns the part, changed unless it is set,
	// and at the others, kept unless it is set.
	owner, others outcome
}

// matrix shows, for each endpoint and each part of a kind, whether a client can change that part there.
type matrix[T generic.Object, V generic.Object] struct {
	server  *testserver.Server
	kind    *generic.Kind[T]
	create  func(*testing.T) V
	changes map[string]change[V]
}

func TestEndpoints(t *testing.T) {
	server := testserver.Start(t)
	client := server.Client(t, "admin").NsinitV1alpha1()
	server.MustConfigure(t, testserver.Configuration("two", "a.example.com", "b.example.com"))
	number := 0
	next := func() string { number++; return fmt.Sprintf("ns-%d", number) }

	t.Run("NamespaceLifecycle", matrix[*nsinit.NamespaceLifecycle, *v1alpha1.NamespaceLifecycle]{
		server, lifecycles(), func(t *testing.T) *v1alpha1.NamespaceLifecycle { return server.MustLifecycle(t, next()) }, lifecycleChanges(),
	}.run)
	t.Run("NamespaceInitializerConfiguration", matrix[*nsinit.NamespaceInitializerConfiguration, *v1alpha1.NamespaceInitializerConfiguration]{
		server, configurations(), func(t *testing.T) *v1alpha1.NamespaceInitializerConfiguration {
			return server.MustConfigure(t, testserver.Configuration(next(), "a.example.com", "b.example.com"))
		}, configurationChanges(),
	}.run)
	t.Run("NamespacePopulation", matrix[*nsinit.NamespacePopulation, *v1alpha1.NamespacePopulation]{
		server, population.NewKind(), func(t *testing.T) *v1alpha1.NamespacePopulation {
			return must(client.NamespacePopulations().Create(t.Context(), &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: next()}}, metav1.CreateOptions{}))(t)
		}, populationChanges(),
	}.run)
	t.Run("PopulatedNamespace", matrix[*nsinit.PopulatedNamespace, *v1alpha1.PopulatedNamespace]{
		server, population.NewPopulatedKind(), func(t *testing.T) *v1alpha1.PopulatedNamespace {
			return must(client.PopulatedNamespaces().Create(t.Context(), &v1alpha1.PopulatedNamespace{
				ObjectMeta: metav1.ObjectMeta{Name: next()}, Spec: v1alpha1.PopulatedNamespaceSpec{NamespaceUID: "u"},
			}, metav1.CreateOptions{}))(t)
		}, populatedChanges(),
	}.run)
}

func (m matrix[T, V]) run(t *testing.T) {
	for _, part := range m.kind.Parts {
		if !slices.ContainsFunc(slices.Collect(maps.Values(m.changes)), func(c change[V]) bool { return c.part == part.Name }) {
			t.Errorf("no change of the part %s", part.Name)
		}
	}
	for name, endpoint := range m.kind.Endpoints {
		managed := 0
		for _, verb := range append(testserver.Verbs(name), string(types.ApplyPatchType)) {
			for what, change := range m.changes {
				t.Run(fmt.Sprintf("%s %s of %s", verb, what, cmp.Or(name, "the main resource")), func(t *testing.T) {
					want := cmp.Or(change.others, kept)
					if slices.Contains(endpoint.Owns, change.part) {
						want = cmp.Or(change.owner, changed)
					}
					managed += m.try(t, name, verb, change, want)
				})
			}
		}
		if managed == 0 {
			t.Errorf("managedFields never contained a field of %v", endpoint.Owns)
		}
	}
}

// try sends a change to an endpoint and checks what becomes of it. It returns how many entries of
// managedFields the sender got.
func (m matrix[T, V]) try(t *testing.T, endpoint, verb string, change change[V], want outcome) int {
	client := m.server.Client(t, "admin").NsinitV1alpha1().RESTClient()
	old := m.create(t)
	sent := old.DeepCopyObject().(V)
	change.do(sent)
	err := testserver.Write(client, verb, m.kind.Resource, endpoint, old, sent)
	now := reflect.New(reflect.TypeFor[V]().Elem()).Interface().(V)
	if err := client.Get().Resource(m.kind.Resource).Name(old.GetName()).Do(t.Context()).Into(now); err != nil {
		t.Fatal(err)
	}
	differs := m.differing(t, change.part, old, now)
	switch {
	case want == refused && err == nil:
		t.Error("the write was accepted")
	case want == refused && !apierrors.IsInvalid(err) && !apierrors.IsConflict(err):
		t.Errorf("the write was refused, but with %v", err)
	case want != refused && err != nil:
		t.Errorf("the write was refused: %v", err)
	case want == changed && differs == "" && verb != string(types.ApplyPatchType): // which does not remove what others own
		t.Error("nothing changed")
	case want != changed && differs != "":
		t.Errorf("it changed:\n%s", differs)
	}
	return m.managed(t, endpoint, now)
}

// differing returns how a part differs between two objects.
func (m matrix[T, V]) differing(t *testing.T, name string, old, now V) string {
	t.Helper()
	before, after := m.internal(t, old), m.internal(t, now)
	part := m.kind.Parts[slices.IndexFunc(m.kind.Parts, func(p generic.Part[T]) bool { return p.Name == name })]
	unchanged := after.DeepCopyObject().(T)
	part.Copy(unchanged, before)
	return gocmp.Diff(unchanged, after)
}

func (m matrix[T, V]) internal(t *testing.T, object V) T {
	t.Helper()
	internal := m.kind.New().(T)
	if err := scheme.New().Convert(object, internal, nil); err != nil {
		t.Fatal(err)
	}
	return internal
}

// managed checks that the sender manages no field of a part that the endpoint does not own.
func (m matrix[T, V]) managed(t *testing.T, endpoint string, object V) int {
	entries := 0
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != testserver.FieldManager {
			continue
		}
		entries++
		var fields map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		for _, part := range m.kind.Parts {
			if slices.Contains(m.kind.Endpoints[endpoint].Owns, part.Name) {
				continue
			}
			for _, path := range append(part.Fields, part.Name) {
				if hasField(fields, strings.Split(path, ".")) {
					t.Errorf("the sender manages %s: %s", path, entry.FieldsV1.GetRawBytes())
				}
			}
		}
	}
	return entries
}

// hasField says whether an entry of managedFields, as JSON, has a field.
func hasField(fields any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	children, _ := fields.(map[string]any)
	for key, child := range children {
		item := strings.NewReplacer("[", `k:{"`, "=", `":`, "]", "}").Replace(path[0]) // of [type="Ready"]
		if (key == "f:"+path[0] || key == item || path[0] == "*" && strings.HasPrefix(key, "k:")) && hasField(child, path[1:]) {
			return true
		}
	}
	return false
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// metadataChanges are those of every kind. A UID is a precondition.
func metadataChanges[V metav1.Object](changes map[string]change[V]) map[string]change[V] {
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "x", UID: "y"}}
	maps.Copy(changes, map[string]change[V]{
		"labels":              {part: "metadata", do: func(o V) { o.SetLabels(map[string]string{"a": "b"}) }},
		"annotations":         {part: "metadata", do: func(o V) { o.SetAnnotations(map[string]string{"a": "b"}) }},
		"metadata.finalizers": {part: "metadata", do: func(o V) { o.SetFinalizers([]string{"a.example.com/x"}) }},
		"ownerReferences":     {part: "metadata", do: func(o V) { o.SetOwnerReferences(owner) }},
		"generation":          {part: "metadata", do: func(o V) { o.SetGeneration(99) }, owner: kept},
		"uid":                 {part: "metadata", do: func(o V) { o.SetUID("other") }, owner: refused, others: refused},
	})
	return changes
}

func lifecycleChanges() map[string]change[*v1alpha1.NamespaceLifecycle] {
	type lifecycle = *v1alpha1.NamespaceLifecycle
	stalled := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTurnTooLong, LastTransitionTime: metav1.Now()}
	byHand := metav1.Condition{Type: v1alpha1.ConditionOpenedByHand, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonLabelRemoved, LastTransitionTime: metav1.Now()}
	entry := func(change func(*v1alpha1.InitializerStatus)) func(lifecycle) {
		return func(l lifecycle) { change(&l.Status.Initializers[0]) }
	}
	return metadataChanges(map[string]change[lifecycle]{
		"namespaceUID": {part: "spec.namespaceUID", do: func(l lifecycle) { l.Spec.NamespaceUID = "other" }, owner: refused},
		"plan":         {part: "spec.plan", do: func(l lifecycle) { l.Spec.Plan = l.Spec.Plan[1:] }},
		"pending":      {part: "spec.initializers", do: func(l lifecycle) { l.Spec.Initializers.Pending = l.Spec.Initializers.Pending[1:] }},
		"result": {part: "spec.initializers", do: func(l lifecycle) {
			l.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no quota"}
		}},
		"failedInitializer":      {part: "spec.initializers", do: func(l lifecycle) { l.Spec.Initializers.FailedInitializer = "b.example.com" }, owner: refused},
		"skipped":                {part: "spec.skipped", do: func(l lifecycle) { l.Spec.Skipped = []string{"a.example.com"} }, owner: refused},
		"a finalizer":            {part: "spec.finalizers", do: func(l lifecycle) { l.Spec.Finalizers = append(l.Spec.Finalizers, "a.example.com") }},
		"no finalizers":          {part: "spec.finalizers", do: func(l lifecycle) { l.Spec.Finalizers = nil }},
		"phase":                  {part: "derived status", do: func(l lifecycle) { l.Status.Phase = v1alpha1.LifecycleActive }},
		"currentInitializers":    {part: "derived status", do: func(l lifecycle) { l.Status.CurrentInitializers = []string{"other"} }},
		"no currentInitializers": {part: "derived status", do: func(l lifecycle) { l.Status.CurrentInitializers = nil }},
		"state":                  {part: "derived status", do: entry(func(s *v1alpha1.InitializerStatus) { s.State = v1alpha1.InitializerDone })},
		"startTime":              {part: "derived status", do: entry(func(s *v1alpha1.InitializerStatus) { s.StartTime = nil })},
		"startTime of another year": {part: "derived status", do: func(l lifecycle) {
			l.Status.Initializers[0].StartTime = &metav1.MicroTime{Time: l.CreationTimestamp.AddDate(-1, 0, 0)}
		}},
		"startTime of one that waits": {part: "derived status", do: func(l lifecycle) {
			l.Status.Initializers[1].StartTime = l.Status.Initializers[0].StartTime
		}},
		"stalledTime": {part: "status.initializers", do: entry(func(s *v1alpha1.InitializerStatus) { s.StalledTime = s.StartTime })},
		"stalledTime of one that waits": {part: "status.initializers", do: func(l lifecycle) {
			l.Status.Initializers[1].StalledTime = l.Status.Initializers[0].StartTime
		}, owner: kept},
		"the condition Stalled": {part: "derived status", do: func(l lifecycle) { l.Status.Conditions = append(l.Status.Conditions, stalled) }},
		"endTime":               {part: "derived status", do: entry(func(s *v1alpha1.InitializerStatus) { s.EndTime = s.StartTime })},
		"deadline":              {part: "derived status", do: entry(func(s *v1alpha1.InitializerStatus) { s.Deadline = s.StartTime })},
		"lastActor":             {part: "derived status", do: entry(func(s *v1alpha1.InitializerStatus) { s.LastActor = "other" })},
		"derived conditions":    {part: "derived status", do: func(l lifecycle) { l.Status.Conditions[0].Message = "changed" }},
		"message":               {part: "status.initializers", do: entry(func(s *v1alpha1.InitializerStatus) { s.Message = "half way" })},
		"an entry outside the plan": {part: "status.initializers", do: func(l lifecycle) {
			l.Status.Initializers = append(l.Status.Initializers, v1alpha1.InitializerStatus{Name: "unplanned.example.com", State: v1alpha1.InitializerWaiting})
		}, owner: refused},
		"no entries":    {part: "status.initializers", do: func(l lifecycle) { l.Status.Initializers = nil }, owner: kept},
		"conditions":    {part: "status.conditions", do: func(l lifecycle) { l.Status.Conditions = append(l.Status.Conditions, byHand) }},
		"no conditions": {part: "status.conditions", do: func(l lifecycle) { l.Status.Conditions = nil }, owner: kept},
	})
}

func configurationChanges() map[string]change[*v1alpha1.NamespaceInitializerConfiguration] {
	type configuration = *v1alpha1.NamespaceInitializerConfiguration
	entries := func(entry v1alpha1.RegisteredInitializerStatus) func(configuration) {
		return func(c configuration) { c.Status.Initializers = []v1alpha1.RegisteredInitializerStatus{entry} }
	}
	now := metav1.NowMicro()
	return metadataChanges(map[string]change[configuration]{
		"initializers":               {part: "initializers", do: func(c configuration) { c.Initializers = c.Initializers[1:] }},
		"finalizer":                  {part: "initializers", do: func(c configuration) { c.Initializers[0].Finalizer = true }},
		"a finalizer":                {part: "spec.finalizers", do: func(c configuration) { c.Spec.Finalizers = append(c.Spec.Finalizers, "a.example.com") }},
		"no finalizers":              {part: "spec.finalizers", do: func(c configuration) { c.Spec.Finalizers = nil }},
		"phase":                      {part: "status.phase", do: func(c configuration) { c.Status.Phase = v1alpha1.ConfigurationTerminating }},
		"no phase":                   {part: "status.phase", do: func(c configuration) { c.Status.Phase = "" }},
		"pending":                    {part: "status", do: func(c configuration) { c.Status.PendingNamespaces = 7 }},
		"a report":                   {part: "status", do: entries(v1alpha1.RegisteredInitializerStatus{Name: "a.example.com", ReportTime: &now})},
		"a reporter":                 {part: "status.initializers.*.reporter", do: entries(v1alpha1.RegisteredInitializerStatus{Name: "a.example.com", Reporter: "other"})},
		"an entry of no initializer": {part: "status", do: entries(v1alpha1.RegisteredInitializerStatus{Name: "c.example.com", ReportTime: &now}), owner: refused},
	})
}

func populationChanges() map[string]change[*v1alpha1.NamespacePopulation] {
	type population = *v1alpha1.NamespacePopulation
	return metadataChanges(map[string]change[population]{
		"selector": {part: "spec", do: func(p population) {
			p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}},
		"status": {part: "status", do: func(p population) { p.Status.Namespaces = 7 }},
	})
}

func populatedChanges() map[string]change[*v1alpha1.PopulatedNamespace] {
	type populated = *v1alpha1.PopulatedNamespace
	return metadataChanges(map[string]change[populated]{
		"namespaceUID": {part: "spec", do: func(p populated) { p.Spec.NamespaceUID = "other" }, owner: refused},
		"status": {part: "status", do: func(p populated) {
			p.Status.Objects = []v1alpha1.PopulatedObject{{Population: "p", Manifest: "m", State: v1alpha1.PopulatedObjectPending}}
		}},
	})
}
