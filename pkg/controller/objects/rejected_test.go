/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
)

// TestRetryRejected: kube-apiserver gets a configuration that it rejected again after a while. Meanwhile, the others stay in force.
func TestRetryRejected(t *testing.T) {
	bad, upgraded := initializerOf("bad.example.com", "jobs"), false
	bad.MatchConditions = []v1alpha1.MatchCondition{{Name: "a", Expression: "bad"}}
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	c := newClients(t, configurationOf("1", bad, initializerOf("a.example.com", "pods")), configurationOf("2", initializerOf("a.example.com", "pods")))
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
			c, indexer := newClients(t, test.live...), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
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
