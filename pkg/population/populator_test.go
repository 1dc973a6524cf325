/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/pkg/population"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	typed "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
)

// coreObjects is a core API that knows ConfigMaps and ClusterRoles, by their paths.
type coreObjects struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	// applying is called before an object is stored, and says whether it is stored.
	applying func(path string) bool
	// reading is called before an object is read, if it is set.
	reading func(path string)
	// deleted says that a finalizer keeps the objects.
	deleted bool
	// time is when objects are applied, or empty: their managedFields do not say it.
	time string
	// unavailable answers every request with 503.
	unavailable bool
}

func (c *coreObjects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accepted := r.Method != http.MethodPatch || c.applying(r.URL.Path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Method == http.MethodGet && c.reading != nil {
		c.reading(r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	if c.unavailable {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(apierrors.NewServiceUnavailable("etcd is gone").Status())
		return
	}
	object, exists := c.objects[r.URL.Path]
	if !accepted || !exists && r.Method != http.MethodPatch {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Details: &metav1.StatusDetails{}})
		return
	}
	switch r.Method {
	case http.MethodPatch:
		var applied map[string]any
		_ = json.NewDecoder(r.Body).Decode(&applied)
		applied["metadata"].(map[string]any)["uid"] = "uid-" + r.URL.Path
		if c.time != "" {
			applied["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "hook", "operation": "Apply", "time": c.time}}
		}
		if c.deleted {
			applied["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T03:04:05Z"
		}
		if status, has := object["status"]; has {
			applied["status"] = status
		}
		if object = applied; r.URL.Query().Get("dryRun") == "" {
			c.objects[r.URL.Path] = applied
		}
	case http.MethodDelete:
		delete(c.objects, r.URL.Path)
	}
	_ = json.NewEncoder(w).Encode(object)
}

// mapper knows the kinds of the test.
type mapper struct{ meta.RESTMapper }

func (mapper) Reset() {}

func newMapper() meta.ResettableRESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, meta.RESTScopeRoot)
	return mapper{m}
}

// setUp returns a Populator, the core API behind it, and a client of nsinit.
func setUp(t *testing.T, allowed ...schema.GroupResource) (*population.Populator, *coreObjects, typed.NsinitV1alpha1Interface) {
	t.Helper()
	client := testserver.Start(t).Client(t, "admin").NsinitV1alpha1()
	core := &coreObjects{objects: map[string]map[string]any{}, applying: func(string) bool { return true }}
	server := httptest.NewServer(core)
	t.Cleanup(server.Close)
	objects, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	applier := &population.Applier{Client: objects, Mapper: newMapper(), FieldManager: "hook", ClusterScoped: map[schema.GroupResource]struct{}{}, Compiler: &population.Compiler{}}
	for _, resource := range allowed {
		applier.ClusterScoped[resource] = struct{}{}
	}
	return population.NewPopulator(applier, client), core, client
}

func populate(t *testing.T, client typed.NsinitV1alpha1Interface, templates ...string) *v1alpha1.NamespacePopulation {
	t.Helper()
	p := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for i, template := range templates {
		p.Spec.Manifests = append(p.Spec.Manifests, v1alpha1.PopulationManifest{Name: fmt.Sprintf("m%d", i), Template: runtime.RawExtension{Raw: []byte(template)}})
	}
	p, err := client.NamespacePopulations().Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func namespaceWith(uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: uid, Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "alice"}}}
}

// stores makes the core API store the namespace with a UID.
func (c *coreObjects) stores(uid string) {
	c.objects["/api/v1/namespaces/shop"] = map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop", "uid": uid}}
}

const configMapA = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`

// TestInventoryFirst: an object is in the inventory before it is applied, so that a crash loses no object.
func TestInventoryFirst(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	populate(t, client, configMapA, strings.Replace(configMapA, `"a"`, `"b"`, 1))
	core.applying = func(path string) bool {
		inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil || !slices.ContainsFunc(inventory.Status.Objects, func(o v1alpha1.PopulatedObject) bool { return strings.HasSuffix(path, "/"+o.Name) }) {
			t.Errorf("%s is applied, and the inventory is %+v, %v", path, inventory, err)
		}
		return true
	}
	var populated []string
	p.Populated = func(inventory *v1alpha1.PopulatedNamespace) { populated = append(populated, inventory.ResourceVersion) }
	p.Wrote = func(_ string, stored metav1.Object) {
		t.Errorf("%s was written into an open namespace", stored.GetName())
	}
	if err := p.Initialize(t.Context(), namespaceWith("u")); err != nil {
		t.Fatal(err)
	}
	inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil || len(inventory.Status.Objects) != 2 || inventory.Status.Objects[1].UID != "uid-/api/v1/namespaces/shop/configmaps/b" {
		t.Errorf("the inventory is %+v, %v", inventory, err)
	}
	// Nothing changes the second time, so nothing is written.
	if err := p.Initialize(t.Context(), namespaceWith("u")); err != nil {
		t.Fatal(err)
	}
	if again, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{}); err != nil || again.ResourceVersion != inventory.ResourceVersion {
		t.Errorf("it was written again: %+v, %v", again, err)
	}
	if !slices.Equal(populated, []string{inventory.ResourceVersion}) {
		t.Errorf("populated: %q, want only %s", populated, inventory.ResourceVersion)
	}
}

// TestTogether: objects are applied at the same time. One that needs an earlier one is applied again after it, and of two
// manifests of one object the later one counts.
func TestTogether(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	named := func(name, more string) string { return strings.Replace(configMapA, `"a"}`, `"`+name+`"}`+more, 1) }
	populate(t, client, named("a", ""), named("needs-a", ""), named("twice", `,"data":{"is":"first"}`), named("twice", `,"data":{"is":"last"}`))
	tried := make(chan struct{})
	var once sync.Once
	core.applying = func(path string) bool {
		switch name := path[strings.LastIndex(path, "/")+1:]; name {
		case "a":
			<-tried // a is slow
		case "needs-a":
			defer once.Do(func() { close(tried) })
			core.mu.Lock()
			defer core.mu.Unlock()
			return core.objects[strings.Replace(path, "needs-a", "a", 1)] != nil
		}
		return true
	}
	if err := p.Initialize(t.Context(), namespaceWith("u")); err != nil {
		t.Fatal(err)
	}
	if data := core.objects["/api/v1/namespaces/shop/configmaps/twice"]["data"]; len(core.objects) != 3 || fmt.Sprint(data) != "map[is:last]" {
		t.Errorf("there are %v", core.objects)
	}
}

// TestFormerNamespace: the inventory of a former namespace of the same name is replaced.
func TestFormerNamespace(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA)
	if err := p.Initialize(t.Context(), namespaceWith("former")); err != nil {
		t.Fatal(err)
	}
	// Its manifest is gone, and the object of this name is the new namespace's.
	stored.Spec.Manifests = nil
	if _, err := client.NamespacePopulations().Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	core.stores("new")
	if err := p.Initialize(t.Context(), namespaceWith("new")); err != nil {
		t.Fatal(err)
	}
	// A process that was paused meanwhile does not delete it.
	if err := p.Populate(t.Context(), namespaceWith("former"), population.Repair); !errors.Is(err, population.ErrChanged) {
		t.Errorf("a repair of the former namespace: %v", err)
	}
	inventory, err := client.PopulatedNamespaces().Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil || inventory.Spec.NamespaceUID != "new" || len(inventory.Status.Objects) != 0 || inventory.OwnerReferences[0].UID != "new" {
		t.Errorf("the inventory is %+v, %v", inventory, err)
	}
	if len(core.objects) != 2 {
		t.Errorf("there are %v", core.objects)
	}
}

// TestScopeNew: a repair brings no population with scope New to a namespace that is older, although another one has populated it.
func TestScopeNew(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	populate(t, client, configMapA)
	namespace := namespaceWith("u")
	if err := p.Initialize(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	later := &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: v1alpha1.NamespacePopulationSpec{Manifests: []v1alpha1.PopulationManifest{
		{Name: "b", DriftPolicy: v1alpha1.DriftRepair, Template: runtime.RawExtension{Raw: []byte(strings.Replace(configMapA, `"a"`, `"b"`, 1))}}}}}
	stored, err := client.NamespacePopulations().Create(t.Context(), later, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, since := range []time.Duration{-time.Second, 0} {
		namespace.CreationTimestamp = metav1.NewTime(stored.CreationTimestamp.Add(since))
		if err := p.Populate(t.Context(), namespace, population.Repair); err != nil {
			t.Fatal(err)
		}
		if _, applied := core.objects["/api/v1/namespaces/shop/configmaps/b"]; applied != (since == 0) {
			t.Errorf("in a namespace that was created %s after the population, its object was applied: %t", since, applied)
		}
	}
}

// TestPruneOwn: what is pruned is what was applied, and nothing that took its place.
func TestPruneOwn(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/namespaces/shop/configmaps/a"
	labelledBy := func(manager, uid, population string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "uid": uid, "labels": map[string]any{v1alpha1.LabelPopulation: population},
			"managedFields": []any{map[string]any{"manager": manager, "operation": "Apply", "time": "2026-11-21T12:00:00Z"}}}}
	}
	labelled := func(uid, population string) map[string]any { return labelledBy("hook", uid, population) }
	p, core, _ := setUp(t)
	for name, test := range map[string]struct {
		live   map[string]any
		known  types.UID
		pruned bool
	}{
		"what was applied":                      {labelled("u", "p"), "u", true},
		"what lost its label":                   {labelled("u", ""), "u", true},
		"another one":                           {labelled("v", "p"), "u", false},
		"what was about to be applied":          {labelled("u", "p"), "", true},
		"what another client created meanwhile": {labelled("u", ""), "", false},
		"what another client labelled":          {labelledBy("kubectl", "u", "p"), "", false},
		"what another population made instead":  {labelled("u", "q"), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			core.objects = map[string]map[string]any{path: test.live}
			err := p.Prune(t.Context(), namespaceWith("n"), v1alpha1.PopulatedObject{Population: "p", APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: test.known})
			if err != nil || (len(core.objects) == 0) != test.pruned {
				t.Errorf("left: %v, %v", core.objects, err)
			}
		})
	}
}

// TestPruneUnknown: an object is forgotten only if its kind does not exist any more.
func TestPruneUnknown(t *testing.T) {
	t.Parallel()
	p, core, _ := setUp(t)
	absent := apierrors.NewNotFound(schema.GroupResource{}, "")
	for name, test := range map[string]struct {
		apiVersion, kind string
		answer           error
		pruned, fails    bool
	}{
		"another version":          {"v0", "ConfigMap", absent, true, false},
		"no version":               {"v1", "Gone", nil, false, false},
		"no group":                 {"gone.example.com/v1", "Gone", absent, false, false},
		"the server does not work": {"down.example.com/v1", "Down", apierrors.NewServiceUnavailable("no endpoints"), false, true},
	} {
		core.objects = map[string]map[string]any{"/api/v1/namespaces/shop/configmaps/a": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "uid": "u"}}}
		p.Discovery = discoveryFails{err: test.answer}
		err := p.Prune(t.Context(), namespaceWith("n"), v1alpha1.PopulatedObject{Population: "p", APIVersion: test.apiVersion, Kind: test.kind, Name: "a", UID: "u"})
		if (err != nil) != test.fails || test.fails && !population.IsTemporary(err) || (len(core.objects) == 0) != test.pruned {
			t.Errorf("%s: left %v, %v", name, core.objects, err)
		}
	}
}

// discoveryFails answers with an error.
type discoveryFails struct {
	discovery.ServerResourcesInterface
	err error
}

func (d discoveryFails) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{}, d.err
}

// TestReplacement: a repair keeps an object until the one that its manifest has now is applied.
func TestReplacement(t *testing.T) {
	t.Parallel()
	p, core, client := setUp(t)
	stored := populate(t, client, configMapA)
	change := func(template string) {
		stored.Spec.Manifests[0].DriftPolicy, stored.Spec.Manifests[0].Template.Raw = v1alpha1.DriftRepair, []byte(template)
		var err error
		if stored, err = client.NamespacePopulations().Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	change(configMapA)
	if err := p.Initialize(t.Context(), namespaceWith("u")); err != nil {
		t.Fatal(err)
	}
	change(strings.Replace(configMapA, `"a"`, `"b"`, 1))
	for _, accepted := range []bool{false, true} {
		core.applying = func(string) bool { return accepted }
		err := p.Populate(t.Context(), namespaceWith("u"), population.Repair)
		_, a := core.objects["/api/v1/namespaces/shop/configmaps/a"]
		_, b := core.objects["/api/v1/namespaces/shop/configmaps/b"]
		if (err == nil) != accepted || a == accepted || b != accepted {
			t.Errorf("accepted %t: left %v, %v", accepted, core.objects, err)
		}
	}
}

// TestPruneClusterScoped: whatever the inventory contains, an object outside of namespaces is pruned if it
// belongs to the namespace.
func TestPruneClusterScoped(t *testing.T) {
	t.Parallel()
	const path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin"
	p, core, _ := setUp(t)
	for owner, pruned := range map[string]bool{"n": true, "another": false, "": false} {
		role := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "admin", "uid": "u"}}
		if owner != "" {
			role["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": "shop", "uid": owner}}
		}
		core.objects = map[string]map[string]any{path: role}
		err := p.Prune(t.Context(), namespaceWith("n"), v1alpha1.PopulatedObject{Population: "p", APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "admin", UID: "u"})
		if err != nil || (len(core.objects) == 0) != pruned {
			t.Errorf("owned by %q: left %v, %v", owner, core.objects, err)
		}
	}
}

// TestClusterScoped: an object outside of namespaces is the namespace's, or is left alone.
func TestClusterScoped(t *testing.T) {
	t.Parallel()
	const path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/r"
	const template = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"r"}}`
	owned := func(name, uid string) map[string]any {
		return map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "r", "resourceVersion": "7",
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid}}}}
	}
	for name, test := range map[string]struct {
		live    map[string]any
		allowed bool
		says    string
	}{
		"it may not":                      {nil, false, "ask an administrator to add clusterroles.rbac.authorization.k8s.io to --cluster-scoped-resources"},
		"there is none":                   {nil, true, ""},
		"its own":                         {owned("shop", "u"), true, ""},
		"of the former namespace":         {owned("shop", "former"), true, "has not been garbage collected yet"},
		"of another namespace":            {owned("depot", "d"), true, "it exists and does not belong to this namespace"},
		"no owner, such as cluster-admin": {map[string]any{"metadata": map[string]any{"name": "r"}}, true, "it exists and does not belong to this namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			var allowed []schema.GroupResource
			if test.allowed {
				allowed = append(allowed, schema.ParseGroupResource("clusterroles.rbac.authorization.k8s.io"))
			}
			p, core, client := setUp(t, allowed...)
			populate(t, client, template)
			if test.live != nil {
				test.live["apiVersion"], test.live["kind"] = "rbac.authorization.k8s.io/v1", "ClusterRole"
				core.objects[path] = test.live
			}
			applied := false
			core.applying = func(string) bool { applied = true; return true }
			err := p.Initialize(t.Context(), namespaceWith("u"))
			if test.says == "" {
				if err != nil || !applied {
					t.Errorf("applied: %v, %v", applied, err)
				}
				references, _ := core.objects[path]["metadata"].(map[string]any)["ownerReferences"].([]any)
				if len(references) != 1 || references[0].(map[string]any)["uid"] != "u" {
					t.Errorf("it is owned by %v", references)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.says) || applied {
				t.Errorf("applied: %v, %v", applied, err)
			}
		})
	}
}
