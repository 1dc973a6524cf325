/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package testserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// CoreAPI serves the parts of the core API that nsinit-apiserver uses: reviews of tokens and access,
// namespaces, the ConfigMap that names the storage, registrations of admission policies and webhooks, and no RBAC.
type CoreAPI struct {
	server *httptest.Server

	mu         sync.Mutex
	namespaces map[string]*corev1.Namespace
	configMaps map[string]*corev1.ConfigMap
	rules      map[string][]Rule
	failing    bool
	unanswered string
	registered map[string][]runtime.Object
	refused    map[string]*apierrors.StatusError
}

// Rule allows verbs on a resource, as an RBAC rule does. * matches everything.
type Rule struct {
	Verb     string
	Group    string
	Resource string
	Name     string
}

// Everything is the rule of an administrator.
func Everything() Rule { return Rule{Verb: "*", Group: "*", Resource: "*", Name: "*"} }

// NewCoreAPI starts a core API without namespaces. The user "admin" has every permission.
func NewCoreAPI(t testing.TB) *CoreAPI {
	t.Helper()
	c := &CoreAPI{namespaces: map[string]*corev1.Namespace{}, configMaps: map[string]*corev1.ConfigMap{}, rules: map[string][]Rule{},
		registered: map[string][]runtime.Object{}, refused: map[string]*apierrors.StatusError{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces", c.listNamespaces)
	mux.HandleFunc("GET /api/v1/namespaces/{name}", c.getNamespace)
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/configmaps/{name}", c.getConfigMap)
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/configmaps", c.createConfigMap)
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", c.reviewToken)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", c.reviewAccess)
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	})
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}})
	})
	mux.HandleFunc("GET /api/v1", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "configmaps", SingularName: "configmap", Namespaced: true, Kind: "ConfigMap", Verbs: metav1.Verbs{"get", "list", "watch"}}}})
	})
	for _, group := range []string{"admissionregistration.k8s.io", "rbac.authorization.k8s.io"} {
		mux.HandleFunc("GET /apis/"+group+"/v1/{resource}", c.listRegistrations(group))
	}
	c.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		c.server.CloseClientConnections() // watches
		c.server.Close()
	})
	c.Allow("admin", Everything())
	return c
}

// SetNamespace stores a namespace.
func (c *CoreAPI) SetNamespace(namespace *corev1.Namespace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespaces[namespace.Name] = namespace.DeepCopy()
}

// DeleteNamespace removes a namespace.
func (c *CoreAPI) DeleteNamespace(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.namespaces, name)
}

// SetConfigMap stores a ConfigMap by its name, without its namespace.
func (c *CoreAPI) SetConfigMap(configMap *corev1.ConfigMap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.configMaps[configMap.Name] = configMap.DeepCopy()
}

// DeleteConfigMap removes a ConfigMap.
func (c *CoreAPI) DeleteConfigMap(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.configMaps, name)
}

// ConfigMap returns a ConfigMap, or nil.
func (c *CoreAPI) ConfigMap(name string) *corev1.ConfigMap {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.configMaps[name].DeepCopy()
}

// Allow replaces the rules of a user. The user's token is its name.
func (c *CoreAPI) Allow(user string, rules ...Rule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rules[user] = rules
}

// Rules returns the rules of a user.
func (c *CoreAPI) Rules(user string) []Rule {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.rules[user])
}

// FailNamespaces makes every read of a namespace fail with an internal error.
func (c *CoreAPI) FailNamespaces(failing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = failing
}

// FailReviews makes every SubjectAccessReview of a verb fail with an internal error. An empty verb ends
// that.
func (c *CoreAPI) FailReviews(verb string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered = verb
}

// Client returns a client of this API.
func (c *CoreAPI) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: c.server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// CloseIdleConnections ends what is left of the connections to this API.
func (c *CoreAPI) CloseIdleConnections() { c.server.CloseClientConnections() }

func (c *CoreAPI) getNamespace(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := r.PathValue("name")
	namespace, found := c.namespaces[name]
	switch {
	case c.failing:
		writeError(w, apierrors.NewInternalError(errors.New("out of order")))
	case !found:
		writeError(w, apierrors.NewNotFound(corev1.Resource("namespaces"), name))
	default:
		namespace = namespace.DeepCopy()
		namespace.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}
		write(w, http.StatusOK, namespace)
	}
}

// SetRegistrations sets the admission policies, bindings or webhooks of a resource. A server reads them when it starts.
func (c *CoreAPI) SetRegistrations(resource string, objects ...runtime.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registered[resource] = objects
}

// RefuseRegistrations makes every list of a resource fail until err is nil.
func (c *CoreAPI) RefuseRegistrations(resource string, err *apierrors.StatusError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[resource] = err
}

func (c *CoreAPI) listRegistrations(group string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c.list(w, r, func() (any, *apierrors.StatusError) {
			resource := r.PathValue("resource")
			items := c.registered[resource]
			if items == nil {
				items = []runtime.Object{}
			}
			return map[string]any{"apiVersion": group + "/v1", "kind": registrationKinds()[resource] + "List",
				"metadata": metav1.ListMeta{ResourceVersion: "1"}, "items": items}, c.refused[resource]
		})
	}
}

// registrationKinds returns the kinds of registrations, and of RBAC, by resource.
func registrationKinds() map[string]string {
	return map[string]string{
		"clusterrolebindings":               "ClusterRoleBinding",
		"clusterroles":                      "ClusterRole",
		"rolebindings":                      "RoleBinding",
		"roles":                             "Role",
		"mutatingadmissionpolicies":         "MutatingAdmissionPolicy",
		"mutatingadmissionpolicybindings":   "MutatingAdmissionPolicyBinding",
		"mutatingwebhookconfigurations":     "MutatingWebhookConfiguration",
		"validatingadmissionpolicies":       "ValidatingAdmissionPolicy",
		"validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
		"validatingwebhookconfigurations":   "ValidatingWebhookConfiguration",
	}
}

func (c *CoreAPI) listNamespaces(w http.ResponseWriter, r *http.Request) {
	c.list(w, r, func() (any, *apierrors.StatusError) {
		list := corev1.NamespaceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for _, namespace := range c.namespaces {
			list.Items = append(list.Items, *namespace)
		}
		return list, nil
	})
}

// list answers lists, and watches without any event: the caches of the server stay stale.
func (c *CoreAPI) list(w http.ResponseWriter, r *http.Request, objects func() (any, *apierrors.StatusError)) {
	switch query := r.URL.Query(); {
	case query.Get("sendInitialEvents") != "":
		writeError(w, apierrors.NewBadRequest("watch lists are not served here"))
	case query.Get("watch") == "true":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		list, err := objects()
		if err != nil {
			writeError(w, err)
			return
		}
		write(w, http.StatusOK, list)
	}
}

func (c *CoreAPI) getConfigMap(w http.ResponseWriter, r *http.Request) {
	configMap := c.ConfigMap(r.PathValue("name"))
	if configMap == nil {
		writeError(w, apierrors.NewNotFound(corev1.Resource("configmaps"), r.PathValue("name")))
		return
	}
	configMap.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	write(w, http.StatusOK, configMap)
}

func (c *CoreAPI) createConfigMap(w http.ResponseWriter, r *http.Request) {
	var configMap corev1.ConfigMap
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, &configMap) // it comes as protobuf
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if c.ConfigMap(configMap.Name) != nil {
		writeError(w, apierrors.NewAlreadyExists(corev1.Resource("configmaps"), configMap.Name))
		return
	}
	c.SetConfigMap(&configMap)
	write(w, http.StatusCreated, configMap)
}

func (c *CoreAPI) reviewToken(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Status = authenticationv1.TokenReviewStatus{
		Authenticated: true,
		User:          authenticationv1.UserInfo{Username: review.Spec.Token, Groups: []string{"system:authenticated"}},
	}
	write(w, http.StatusCreated, review)
}

func (c *CoreAPI) reviewAccess(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := review.Spec.ResourceAttributes
	if a != nil && a.Verb == c.unanswered {
		writeError(w, apierrors.NewInternalError(errors.New("out of order")))
		return
	}
	// Every user has access to every path except for profiles.
	if path := review.Spec.NonResourceAttributes; path != nil {
		a = &authorizationv1.ResourceAttributes{Verb: path.Verb, Resource: path.Path}
		review.Status.Allowed = !strings.HasPrefix(path.Path, "/debug/")
	}
	review.Status.Allowed = review.Status.Allowed || slices.ContainsFunc(c.rules[review.Spec.User], func(rule Rule) bool {
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		return matches(rule.Verb, a.Verb) && matches(rule.Group, a.Group) && matches(rule.Resource, resource) && matches(rule.Name, a.Name)
	})
	write(w, http.StatusCreated, review)
}

func matches(rule, value string) bool { return rule == "*" || rule == value }

func writeError(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	write(w, int(status.Code), status)
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// kubeconfig writes a kubeconfig for this API into a directory.
func (c *CoreAPI) kubeconfig(t testing.TB, dir string) string {
	t.Helper()
	path := strings.TrimSuffix(dir, "/") + "/core.kubeconfig"
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"core": {Server: c.server.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"nsinit": {}},
		Contexts:       map[string]*clientcmdapi.Context{"core": {Cluster: "core", AuthInfo: "nsinit"}},
		CurrentContext: "core",
	}
	if err := clientcmd.WriteToFile(config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
