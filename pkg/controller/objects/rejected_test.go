/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// session returns a session of a controller that does not run. kube-apiserver evaluates each policy as soon as it is written.
func (c *clients) session(t *testing.T, clock *clocktesting.FakeClock) *session {
	t.Helper()
	c.core.PrependReactor("create", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lease := action.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease).DeepCopy()
		if c.registry.objects[policies+"/"+probe] != nil {
			lease.Spec.HolderIdentity = new(regexp.MustCompile(`v\w+\.\d`).FindString(c.registry.policy(t, probe).Mutations[0].JSONPatch.Expression))
		}
		return true, lease, nil
	})
	s := &session{
		Controller: New(Dependencies{Core: c.core, Nsinit: c.nsinit, Metadata: dryRuns{c.metadata, c.registry}, Events: &record.FakeRecorder{}, Clock: clock, Namespace: own}),
		guard:      "guard", end: func() {}, queue: workers.NewQueue("test", clock, time.Second, time.Second), stores: map[string]cache.SharedIndexInformer{},
	}
	t.Cleanup(s.queue.ShutDown)
	return s
}

// review brings the policies in line with all configurations. It returns the status and the reason of InForce of each, and whether it says
// that an entry has no effect.
func (c *clients) review(t *testing.T, s *session) (conditions []string) {
	t.Helper()
	list, err := c.nsinit.NsinitV1alpha1().InitializerConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var configurations []*v1alpha1.InitializerConfiguration
	for i := range list.Items {
		configurations = append(configurations, &list.Items[i])
	}
	if err := s.reconcilePolicies(t.Context(), configurations, exemptionsOf(nil)); err != nil {
		t.Fatal(err)
	}
	if list, err = c.nsinit.NsinitV1alpha1().InitializerConfigurations().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		condition := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.ConditionInForce)
		text := string(condition.Status) + " " + condition.Reason
		if strings.Contains(condition.Message, "have no effect") {
			text += ", without effect"
		}
		conditions = append(conditions, text)
	}
	return conditions
}

// TestRetryRejected: kube-apiserver gets a configuration that it rejected again after a while. Meanwhile, the others stay in force.
func TestRetryRejected(t *testing.T) {
	bad, upgraded := initializerOf("bad.example.com", "jobs"), false
	bad.MatchConditions = []v1alpha1.MatchCondition{{Name: "a", Expression: "bad"}}
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	c := newClients(configurationOf("1", bad, initializerOf("a.example.com", "pods")), configurationOf("2", initializerOf("a.example.com", "pods")))
	c.registry.refuse = func(name string, spec admissionregistrationv1.MutatingAdmissionPolicySpec) error {
		i := slices.IndexFunc(spec.Variables, func(v admissionregistrationv1.Variable) bool { return strings.Contains(v.Expression, "(bad\n)") })
		if i < 0 || upgraded {
			return nil
		}
		return apierrors.NewInvalid(schema.GroupKind{Kind: "MutatingAdmissionPolicy"}, name,
			field.ErrorList{field.Invalid(field.NewPath("spec", "variables").Index(i).Child("expression"), "bad", "undeclared reference")})
	}
	s := c.session(t, clock)
	for range rounds {
		c.review(t, s)
	}
	for i, test := range []struct {
		after    time.Duration
		upgraded bool
		want     []string
	}{
		{0, false, []string{"False Rejected", "True Verified"}},
		{retryRejected, false, []string{"False Rejected", "True Verified"}},
		{retryRejected - time.Second, true, []string{"False Rejected", "True Verified"}},
		{time.Second, true, []string{"False NotEvaluated", "False NotEvaluated"}},
		{0, true, []string{"False NotEvaluated", "False NotEvaluated"}},
		{0, true, []string{"True Verified", "True Verified, without effect"}},
	} {
		clock.Step(test.after)
		upgraded = test.upgraded
		if got := c.review(t, s); !slices.Equal(got, test.want) {
			t.Errorf("%d: %q, want %q", i, got, test.want)
		}
	}
}

// TestRejectedDeadline: the deadline is that of the entry that is in force, and objects wait for an initializer whose only configuration is
// rejected.
func TestRejectedDeadline(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	ignore := initializerOf("a.example.com", "pods")
	ignore.FailurePolicy, ignore.TimeoutSeconds = new(v1alpha1.Ignore), new(int32(5))
	rejected, accepted := configurationOf("1", initializerOf("a.example.com", "pods")), configurationOf("2", ignore)
	pod := marked(podOf(gateOf("a.example.com")))
	pod.Namespace, pod.CreationTimestamp = "n", metav1.NewTime(clock.Now().Add(-time.Minute))
	for name, test := range map[string]struct {
		cached, live []runtime.Object
		released     bool
	}{
		"the other entry is in force": {[]runtime.Object{rejected, accepted}, nil, true},
		"the same, without a cache":   {nil, []runtime.Object{rejected, accepted}, true},
		"there is no other entry":     {[]runtime.Object{rejected}, []runtime.Object{rejected}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, indexer := newClients(test.live...), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{})
			for _, configuration := range test.cached {
				if err := indexer.Add(configuration); err != nil {
					t.Fatal(err)
				}
			}
			if err := informer.GetStore().Add(pod); err != nil {
				t.Fatal(err)
			}
			released := false
			c.metadata.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				released = true
				return true, &metav1.PartialObjectMetadata{}, nil
			})
			s := c.session(t, clock)
			s.configurations, s.stores["pods"] = listers.NewInitializerConfigurationLister(indexer), informer
			s.rejected.Store(versionOf(rejected), rejection{"undeclared reference", clock.Now()})
			if err := s.reconcile(t.Context(), "pods/n/p"); err != nil || released != test.released {
				t.Errorf("released: %t, %v", released, err)
			}
		})
	}
}
