/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

// checkNext compares the changes since the last call.
func checkNext(t *testing.T, w *Watch, want string) {
	t.Helper()
	changes, err := w.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, change := range changes {
		text := fmt.Sprintf("%s %s %s", change.After.Namespace, change.After.Phase, change.After.State)
		for _, f := range change.Appeared {
			text += " +" + string(f.Cause)
		}
		for _, f := range change.Resolved {
			text += " -" + string(f.Cause)
		}
		got = append(got, text)
	}
	if strings.Join(got, "; ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWatch: only changes are returned, and a namespace that is removed is one.
func TestWatch(t *testing.T) {
	for _, followed := range []string{"", "ns"} {
		t.Run("namespace="+followed, func(t *testing.T) {
			held := terminating(setBy("billing"), func(n *corev1.Namespace) { n.ResourceVersion = "1" })
			d := world{namespace: held, core: []runtime.Object{lease("kube-system", "kube-controller-manager", "cp-1", time.Second)}}.diagnoser(t)
			clock := testingclock.NewFakePassiveClock(now())
			d.Progress, d.Clock = nil, clock
			d.Core.(*fake.Clientset).PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				if held == nil {
					return true, nil, absent("namespaces")
				}
				return true, held, nil
			})
			d.Core.(*fake.Clientset).PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				list := &corev1.NamespaceList{}
				if held != nil {
					list.Items = append(list.Items, *held)
				}
				return true, list, nil
			})
			w := &Watch{Diagnoser: d, Namespace: followed}
			next := func(want string) {
				t.Helper()
				checkNext(t, w, want)
			}
			next("ns Terminating Stuck +NamespaceFinalizer")
			next("")
			clock.SetTime(now().Add(2 * time.Second)) // only ages change
			held = held.DeepCopy()
			held.ResourceVersion = "2"
			next("")
			held = terminating(young, func(n *corev1.Namespace) { n.ResourceVersion = "3" })
			next("ns Terminating Waiting +NamespaceControllerAtWork -NamespaceFinalizer")
			if w.State() != Waiting {
				t.Errorf("the state is %s", w.State())
			}
			held = nil
			next("ns Gone Healthy -NamespaceControllerAtWork")
			next("")
			if w.State() != Healthy {
				t.Errorf("the state is %s", w.State())
			}
		})
	}
}

// TestWatchCluster: what concerns every namespace, and objects without a namespace, are read again each time. What could
// not be read is not resolved.
func TestWatchCluster(t *testing.T) {
	const all = "  Stuck +APIUnavailable +WebhookUnavailable +ContentFinalizer"
	volumes := corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	removeAPI := func(t *testing.T, d Diagnoser) {
		t.Helper()
		if err := d.APIs.ApiregistrationV1().APIServices().Delete(t.Context(), "v1.a.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	addAPI := func(t *testing.T, d Diagnoser) {
		t.Helper()
		if err := d.APIs.(*aggregatorfake.Clientset).Tracker().Add(apiService("b.example.com", "v1")); err != nil {
			t.Fatal(err)
		}
	}
	removeWebhook := func(t *testing.T, d Diagnoser) {
		t.Helper()
		if err := d.Core.(*fake.Clientset).Tracker().Delete(admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"), "", "missing"); err != nil {
			t.Fatal(err)
		}
	}
	removeVolume := func(t *testing.T, d Diagnoser) {
		t.Helper()
		if err := d.Metadata.(*metadatafake.FakeMetadataClient).Tracker().Delete(volumes, "", "v"); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		// resolve acts after the first read, and refused requests fail once after it.
		resolve []func(*testing.T, Diagnoser)
		refused [2]string
		// want are the changes of the second read, and last those of the third one.
		want, last string
		state      State
	}{
		"nothing":         {nil, [2]string{}, "", "", Stuck},
		"an API":          {[]func(*testing.T, Diagnoser){removeAPI}, [2]string{}, "  Stuck -APIUnavailable", "", Stuck},
		"a webhook":       {[]func(*testing.T, Diagnoser){removeWebhook}, [2]string{}, "  Stuck -WebhookUnavailable", "", Stuck},
		"an object":       {[]func(*testing.T, Diagnoser){removeVolume}, [2]string{}, "  Stuck -ContentFinalizer", "", Stuck},
		"everything":      {[]func(*testing.T, Diagnoser){removeAPI, removeWebhook, removeVolume}, [2]string{}, "  Healthy -APIUnavailable -WebhookUnavailable -ContentFinalizer", "", Healthy},
		"no APIs":         {nil, [2]string{"list", "apiservices"}, "", "", Stuck},
		"no webhooks":     {nil, [2]string{"list", "validatingwebhookconfigurations"}, "", "", Stuck},
		"no services":     {nil, [2]string{"get", "services"}, "", "", Stuck},
		"no objects":      {nil, [2]string{"list", "persistentvolumes"}, "", "", Stuck},
		"no discovery":    {nil, [2]string{"discovery"}, "  Stuck +DiscoveryFailed", "  Stuck -DiscoveryFailed", Stuck},
		"another API":     {[]func(*testing.T, Diagnoser){addAPI}, [2]string{"list", "validatingwebhookconfigurations"}, "  Stuck +APIUnavailable", "", Stuck},
		"resolved unseen": {[]func(*testing.T, Diagnoser){removeVolume}, [2]string{"list", "persistentvolumes"}, "", "  Stuck -ContentFinalizer", Stuck},
	} {
		t.Run(name, func(t *testing.T) {
			refused := [2]string{}
			refuses := func(verb, resource, _ string) error {
				if refused == [2]string{verb, resource} {
					return apierrors.NewServiceUnavailable("no")
				}
				return nil
			}
			d := world{
				apis: []runtime.Object{apiService("a.example.com", "v1")}, core: []runtime.Object{webhookFor("missing", "missing", admissionregistrationv1.Fail)},
				content: []runtime.Object{inNamespace(object("PersistentVolume", "v", deleted(time.Hour, "kubernetes.io/pv-protection")), ""), inNamespace(object("PersistentVolume", "w"), "")},
				refuses: refuses,
			}.diagnoser(t)
			d.APIs.(*aggregatorfake.Clientset).PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				err := refuses(action.GetVerb(), action.GetResource().Resource, "")
				return err != nil, nil, err
			})
			discover := d.Discover
			d.Discover = func() ([]*metav1.APIResourceList, error) {
				if refused[0] == "discovery" {
					return nil, apierrors.NewServiceUnavailable("no")
				}
				return discover()
			}
			d.Progress = nil
			w := &Watch{Diagnoser: d}
			checkNext(t, w, all)
			for _, resolve := range test.resolve {
				resolve(t, d)
			}
			refused = test.refused
			checkNext(t, w, test.want)
			refused = [2]string{}
			checkNext(t, w, test.last)
			if w.State() != test.state {
				t.Errorf("the state is %s, want %s", w.State(), test.state)
			}
		})
	}
}

// TestWatchUnread: what cannot be read any more is not resolved, and is reported, until a read shows that it does not exist.
func TestWatchUnread(t *testing.T) {
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	for name, test := range map[string]struct {
		world
		cause Cause
		phase Phase
		// followed is the namespace, or "" for all.
		followed string
		// refused are the verb and the resource that cannot be read, or discovery.
		refused [2]string
	}{
		"an object of an open namespace": {world{namespace: terminating(closed, open), content: []runtime.Object{object("ConfigMap", "a", deleted(time.Hour, "a/b"))}}, ContentFinalizer, Active, "ns", [2]string{"list", "configmaps"}},
		"an object that is not known":    {world{namespace: terminating(closed, open), content: []runtime.Object{object("ConfigMap", "a", deleted(time.Hour, "a/b"))}}, ContentFinalizer, Active, "ns", [2]string{"discovery"}},
		"orphaned content":               {world{content: []runtime.Object{object("ConfigMap", "a")}}, OrphanedContent, Gone, "ns", [2]string{"list", "configmaps"}},
		"all, an open namespace":         {world{namespace: terminating(closed, open), content: []runtime.Object{object("ConfigMap", "a", deleted(time.Hour, "a/b"))}}, ContentFinalizer, Active, "", [2]string{"list", "configmaps"}},
		"all, orphaned content":          {world{content: []runtime.Object{object("ConfigMap", "a")}}, OrphanedContent, Gone, "", [2]string{"list", "configmaps"}},
		"a former namespace":             {world{lifecycles: []runtime.Object{lifecycle(deleting)}, apis: []runtime.Object{nsinitAPI("True")}}, ParticipantPending, Gone, "ns", [2]string{"get", "namespacelifecycles"}},
	} {
		t.Run(name, func(t *testing.T) {
			refused := [2]string{}
			test.refuses = func(verb, resource, _ string) error {
				if refused == [2]string{verb, resource} {
					return apierrors.NewServiceUnavailable("no")
				}
				return nil
			}
			d := test.diagnoser(t)
			discover := d.Discover
			d.Discover = func() ([]*metav1.APIResourceList, error) {
				if refused[0] == "discovery" {
					return nil, apierrors.NewServiceUnavailable("no")
				}
				return discover()
			}
			d.Progress = nil
			w := &Watch{Diagnoser: d, Namespace: test.followed}
			checkNext(t, w, fmt.Sprintf("ns %s Stuck +%s", test.phase, test.cause))
			for round := range 2 {
				refused = test.refused
				checkNext(t, w, "")
				if w.State() != Stuck || !strings.Contains(strings.Join(w.NotExamined(), "\n"), `namespace "ns": `) {
					t.Errorf("round %d: the state is %s, not examined: %q", round, w.State(), w.NotExamined())
				}
			}
			refused = [2]string{}
			err := d.Metadata.(*metadatafake.FakeMetadataClient).Tracker().Delete(configMaps, "ns", "a")
			if test.cause == ParticipantPending {
				err = d.Nsinit.(*nsinitfake.Clientset).Tracker().Delete(v1alpha1.SchemeGroupVersion.WithResource("namespacelifecycles"), "", "ns")
			}
			if err != nil {
				t.Fatal(err)
			}
			checkNext(t, w, fmt.Sprintf("ns %s Healthy -%s", test.phase, test.cause))
			if w.State() != Healthy || len(w.NotExamined()) > 0 {
				t.Errorf("the state is %s, not examined: %q", w.State(), w.NotExamined())
			}
		})
	}
}

// TestWatchUnreadable: namespaces that cannot be read are reported, and do not hide changes of others.
func TestWatchUnreadable(t *testing.T) {
	d := world{core: []runtime.Object{called(terminating(setBy("billing")), "a"), called(terminating(setBy("billing")), "b"), lease("kube-system", "kube-controller-manager", "cp-1", time.Second)},
		refuses: func(verb, _, name string) error {
			if verb == "get" && name == "a" {
				return forbidden("no")
			}
			return nil
		}}.diagnoser(t)
	d.Progress = nil
	w := &Watch{Diagnoser: d}
	checkNext(t, w, "b Terminating Stuck +NamespaceFinalizer")
	if diff := cmp.Diff([]string{`namespace "a": ` + forbidden("no").Error()}, w.NotExamined()); diff != "" {
		t.Errorf("not examined (-want +got):\n%s", diff)
	}
}

// TestCompare: each finding that changes is in the change: a finding is resolved although another one has its cause.
func TestCompare(t *testing.T) {
	finding := func(finalizer, message string) Finding {
		return newFinding(NamespaceFinalizer, Stuck, nil, message, words{"FINALIZER": {finalizer}})
	}
	a, b := finding("example.com/a", "a"), finding("example.com/b", "b")
	for name, test := range map[string]struct {
		before, after, appeared, resolved []Finding
	}{
		"nothing changes":                {[]Finding{a, b}, []Finding{b, a}, nil, nil},
		"one of two is resolved":         {[]Finding{a, b}, []Finding{b}, nil, []Finding{a}},
		"one is resolved, one changes":   {[]Finding{a, b}, []Finding{finding("example.com/b", "c")}, []Finding{finding("example.com/b", "c")}, []Finding{a}},
		"another one appears":            {[]Finding{a}, []Finding{b}, []Finding{b}, []Finding{a}},
		"two of one subject become one":  {[]Finding{a, finding("example.com/a", "x")}, []Finding{finding("example.com/a", "y")}, []Finding{finding("example.com/a", "y")}, []Finding{finding("example.com/a", "x")}},
		"the message changes, no others": {[]Finding{a}, []Finding{finding("example.com/a", "y")}, []Finding{finding("example.com/a", "y")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			change, changed := compare(&Diagnosis{Findings: test.before}, &Diagnosis{Findings: test.after})
			if changed != (len(test.appeared)+len(test.resolved) > 0) {
				t.Errorf("changed: %t", changed)
			}
			if diff := cmp.Diff(test.appeared, change.Appeared, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("appeared (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.resolved, change.Resolved, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("resolved (-want +got):\n%s", diff)
			}
		})
	}
}
