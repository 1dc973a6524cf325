/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package off_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/off"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// cluster has a gate that is in force, and a namespace that is closed. A dry run closes new namespaces while the guard is
// in force, and after that if sticky.
func cluster(t *testing.T, available apiregistrationv1.ConditionStatus, sticky bool) *cmdtesting.Cluster {
	t.Helper()
	bound := metav1.ObjectMeta{Name: "nsinit-guard-create.configmap-nsinit-exemptions"}
	closed := map[string]string{v1alpha1.LabelInitializing: "true"}
	c := cmdtesting.New(
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: bound},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: installation.Follows},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: &admissionregistrationv1.ParamRef{Namespace: "platform"}}},
		// That of a tenant means nothing.
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a-tenant", Name: installation.Off}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "nsinit-stamp.configmap-nsinit-exemptions"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "uid", Labels: closed}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ending", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{"a/b"}, Labels: closed}},
	)
	service := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: installation.APIService, Labels: map[string]string{"a": "b"}},
		Spec:   apiregistrationv1.APIServiceSpec{Group: "nsinit.dev", Version: "v1alpha1", Service: &apiregistrationv1.ServiceReference{Namespace: "platform", Name: "nsinit-apiserver"}},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: available}}}}
	if err := c.APIs.Tracker().Add(service); err != nil {
		t.Fatal(err)
	}
	c.Core.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "jane", Groups: []string{"admins"}}}}, nil
	})
	c.Core.PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		_, err := c.Core.Tracker().Get(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"), "", bound.Name)
		namespace := action.(clienttesting.CreateAction).GetObject().(*corev1.Namespace).DeepCopy()
		if sticky || !apierrors.IsNotFound(err) {
			namespace.Labels = closed
		}
		return true, namespace, nil
	})
	return c
}

const removed = `configmap/nsinit-off created
validatingadmissionpolicybinding.admissionregistration.k8s.io/nsinit-guard-create.configmap-nsinit-exemptions deleted
mutatingadmissionpolicybinding.admissionregistration.k8s.io/nsinit-stamp.configmap-nsinit-exemptions deleted
`

const (
	service = "apiservice.apiregistration.k8s.io/v1alpha1.nsinit.dev"
	stays   = "1 closed namespaces stay closed until nsinit has initialized them; to open them now, run kubectl nsinit off --open-closed\n"
	remains = "1 closed namespaces stay closed until nsinit works again and has initialized them; to open them now, run kubectl nsinit off --open-closed\n"
	isOff   = "New namespaces are not closed any more. To close them again, run kubectl nsinit on.\n"
	waits   = "Once nsinit works, nsinit-controller-manager closes new namespaces. To wait for it, run kubectl nsinit check --wait.\n"
)

func TestOff(t *testing.T) {
	for name, test := range map[string]struct {
		available apiregistrationv1.ConditionStatus
		sticky    bool
		test      cmdtesting.Test
	}{
		"off":              {apiregistrationv1.ConditionTrue, false, cmdtesting.Test{Out: removed, ErrOut: isOff + stays}},
		"the API is down":  {apiregistrationv1.ConditionFalse, false, cmdtesting.Test{Out: removed + service + " deleted\n", ErrOut: isOff + remains}},
		"open":             {apiregistrationv1.ConditionTrue, false, cmdtesting.Test{Args: []string{"--open-closed"}, Out: removed + "namespace/shop opened\n", ErrOut: isOff}},
		"the names":        {apiregistrationv1.ConditionTrue, false, cmdtesting.Test{Args: []string{"-o", "name"}, Out: strings.NewReplacer(" created", "", " deleted", "").Replace(removed), ErrOut: isOff + stays}},
		"static policies":  {apiregistrationv1.ConditionTrue, true, cmdtesting.Test{Args: []string{"--open-closed"}, Out: removed + "namespace/shop opened\n", Err: "a new namespace is still closed or refused: it gets the label nsinit.dev/initializing; if kube-apiserver reads policies"}},
		"no such argument": {apiregistrationv1.ConditionTrue, false, cmdtesting.Test{Args: []string{"shop"}, Err: `unexpected argument "shop"`}},
	} {
		t.Run(name, func(t *testing.T) {
			test.test.Cluster = cluster(t, test.available, test.sticky)
			test.test.Check(t, off.NewOffCommand)
		})
	}
}

// TestDryRun: a dry run prints the same, and sends no other writes.
func TestDryRun(t *testing.T) {
	c := cluster(t, apiregistrationv1.ConditionFalse, false)
	out, _, err := c.Run(t, off.NewOffCommand, "--open-closed", "--dry-run=server")
	if want := removed + service + " deleted\nnamespace/shop opened\n"; err != nil || strings.ReplaceAll(out, " (server dry run)", "") != want || strings.Count(out, " (server dry run)") != 5 {
		t.Errorf("%v, prints\n%s", err, out)
	}
	for _, action := range append(c.Core.Actions(), c.APIs.Actions()...) {
		var dryRun []string
		switch a := action.(type) {
		case clienttesting.CreateActionImpl:
			dryRun = a.CreateOptions.DryRun
		case clienttesting.DeleteActionImpl:
			dryRun = a.DeleteOptions.DryRun
		case clienttesting.PatchActionImpl:
			dryRun = a.PatchOptions.DryRun
		default:
			continue
		}
		if action.GetResource().Resource != "selfsubjectreviews" && len(dryRun) == 0 {
			t.Errorf("%s %s is no dry run", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

// TestOffWithoutNamespace: if the namespace of nsinit is deleted, the rest is removed, too.
func TestOffWithoutNamespace(t *testing.T) {
	c := cluster(t, apiregistrationv1.ConditionFalse, false)
	c.Core.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := apierrors.NewForbidden(corev1.Resource("configmaps"), installation.Off, errors.New("it is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return true, nil, err
	})
	_, rest, _ := strings.Cut(removed, "\n")
	cmdtesting.Test{Cluster: c, Args: []string{"--open-closed"}, Out: rest + service + " deleted\nnamespace/shop opened\n",
		ErrOut: "ConfigMap nsinit-off cannot be created: configmaps \"nsinit-off\" is forbidden: it is being terminated. If nsinit-controller-manager still runs, it closes new namespaces again.\n" + isOff}.Check(t, off.NewOffCommand)
}

// TestExempt: a namespace that is exempt, or may be, shows nothing.
func TestExempt(t *testing.T) {
	for name, test := range map[string]struct {
		list map[string]string
		err  error
		says string
	}{
		"exempt":       {map[string]string{"users": "jane"}, nil, `it is exempt by ConfigMap platform/nsinit-exemptions: line 1 of users, "jane"`},
		"its name":     {map[string]string{"namePrefixes": "nsinit-"}, nil, `it is exempt by ConfigMap platform/nsinit-exemptions: line 1 of namePrefixes, "nsinit-"`},
		"of no group":  {map[string]string{"onlyGroups": "platform"}, nil, `it is exempt by ConfigMap platform/nsinit-exemptions: no group of the creator is in onlyGroups`},
		"not exempt":   {map[string]string{"users": "joe", "onlyGroups": "admins"}, nil, ""},
		"not readable": {nil, errors.New("no connection"), "cannot read the list of exemptions, ConfigMap platform/nsinit-exemptions: no connection"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, apiregistrationv1.ConditionTrue, false)
			if err := c.Core.Tracker().Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: installation.Exemptions}, Data: test.list}); err != nil {
				t.Fatal(err)
			}
			c.Core.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return test.err != nil, nil, test.err })
			says := isOff
			if test.says != "" {
				says = "It is not verified that new namespaces are not closed any more. One of yours is not closed, but " + test.says + ". To close them again, run kubectl nsinit on.\n"
			}
			cmdtesting.Test{Cluster: c, Out: removed, ErrOut: says + stays}.Check(t, off.NewOffCommand)
		})
	}
}

// TestOpenRefused: a namespace that cannot be opened does not keep the others closed.
func TestOpenRefused(t *testing.T) {
	c := cluster(t, apiregistrationv1.ConditionTrue, false)
	if err := c.Core.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apart", UID: "other", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}}); err != nil {
		t.Fatal(err)
	}
	c.Core.PrependReactor("patch", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchAction)
		return ok && patch.GetName() == "apart", nil, errors.New("no")
	})
	cmdtesting.Test{Cluster: c, Args: []string{"--open-closed"}, Out: removed + "namespace/shop opened\n", ErrOut: isOff, Err: `cannot open namespace "apart": no`}.Check(t, off.NewOffCommand)
}

// TestOnRefuses: off that was run meanwhile is not lost.
func TestOnRefuses(t *testing.T) {
	c := cluster(t, apiregistrationv1.ConditionFalse, false)
	if _, _, err := c.Run(t, off.NewOffCommand); err != nil {
		t.Fatal(err)
	}
	c.Core.PrependReactor("delete", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), installation.Off, errors.New("changed"))
	})
	cmdtesting.Test{Cluster: c, Err: "kubectl nsinit off was run meanwhile, so new namespaces are not closed"}.Check(t, off.NewOnCommand)
}

// TestOn: only the ConfigMap is removed, also if off was run twice. nsinit-controller-manager creates the APIService when a program
// serves it: until then, Kubernetes would remove no namespace.
func TestOn(t *testing.T) {
	c := cluster(t, apiregistrationv1.ConditionFalse, false)
	for range 2 {
		if _, _, err := c.Run(t, off.NewOffCommand); err != nil {
			t.Fatal(err)
		}
	}
	configMap, err := c.Core.CoreV1().ConfigMaps("platform").Get(t.Context(), installation.Off, metav1.GetOptions{})
	if diff := cmp.Diff(map[string]string{"user": "jane"}, configMap.Data); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	cmdtesting.Test{Cluster: c, Out: "configmap/nsinit-off deleted\n", ErrOut: waits}.Check(t, off.NewOnCommand)
	if _, err := c.APIs.ApiregistrationV1().APIServices().Get(t.Context(), installation.APIService, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the APIService: %v", err)
	}
	cmdtesting.Test{Cluster: c, ErrOut: "kubectl nsinit off was not run, or on was run since: nothing is changed.\n"}.Check(t, off.NewOnCommand)
}
