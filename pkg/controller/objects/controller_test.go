/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	"github.com/nsinit/nsinit/sdk/util/workers"
)

// clients are those of a controller that runs on a cluster with the component.
type clients struct {
	core     *fake.Clientset
	nsinit   *nsinitfake.Clientset
	metadata *metadatafake.FakeMetadataClient
	registry *registry
}

// newClients returns clients of a kube-apiserver that evaluates each policy as soon as it is written.
func newClients(t *testing.T, configurations ...runtime.Object) *clients {
	t.Helper()
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: installation.ObjectsGuard}}
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	r := newRegistry()
	c := &clients{
		fake.NewClientset(binding, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: installation.Exemptions}},
			&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: installation.ObjectsGuard, UID: "guard"}}),
		nsinitfake.NewClientset(configurations...), r.client(), r,
	}
	c.core.PrependReactor("create", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lease := action.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease).DeepCopy()
		if c.registry.objects[policies+"/"+probe] != nil {
			lease.Spec.HolderIdentity = new(regexp.MustCompile(`v\w+\.\d`).FindString(c.registry.policy(t, probe).Mutations[0].JSONPatch.Expression))
		}
		return true, lease, nil
	})
	return c
}

// run runs a controller until the end of the test.
func (c *clients) run(t *testing.T) {
	t.Helper()
	exempt := exemptions.New(c.core, own)
	controller := New(Dependencies{Core: c.core, Nsinit: c.nsinit, Metadata: c.metadata, Exemptions: exempt, Events: &record.FakeRecorder{}, Clock: clock.RealClock{}, Namespace: own})
	var group sync.WaitGroup
	for _, run := range []func(context.Context) error{exempt.Run, controller.Run} {
		group.Go(func() {
			if err := run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(group.Wait)
}

// install stores policies for configurations, as another leader does.
func (c *clients) install(t *testing.T, configurations ...*v1alpha1.InitializerConfiguration) {
	t.Helper()
	all, _, err := compile(configurations, exemptionsOf(nil), own)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		for _, resource := range []string{policies, bindings} {
			if one.Policy != nil {
				c.registry.store(resource, one.Name, []metav1.OwnerReference{{UID: "guard"}}, nil)
			}
		}
	}
}

// session returns a session of a controller that does not run.
func (c *clients) session(t *testing.T, clock *clocktesting.FakeClock) *session {
	t.Helper()
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

// TestWithoutRights: if the component is installed without its rights, InForce says so. The number of objects that wait is not known.
func TestWithoutRights(t *testing.T) {
	configuration := configurationOf("c", initializerOf("a.example.com", "pods"))
	configuration.Status.PendingObjects = 3
	c := newClients(t, configuration)
	forbidden := func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no rights"))
	}
	c.core.PrependReactor("list", "pods", forbidden)
	c.metadata.PrependReactor("*", "*", forbidden)
	c.run(t)
	for {
		live, err := c.nsinit.NsinitV1alpha1().InitializerConfigurations().Get(t.Context(), "c", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		condition := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionInForce)
		if condition == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		if condition.Status != metav1.ConditionFalse || condition.Reason != reasonError || live.Status.PendingObjects != 3 {
			t.Errorf("%+v, and %d objects wait", condition, live.Status.PendingObjects)
		}
		return
	}
}

// TestUnknownConfigurations: nothing is written before the configurations are known.
func TestUnknownConfigurations(t *testing.T) {
	c, tries, written := newClients(t), atomic.Int32{}, make(chan int32, 100)
	c.nsinit.PrependReactor("list", "initializerconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return tries.Add(1) == 1, nil, errors.New("no etcd")
	})
	c.metadata.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		written <- tries.Load()
		return false, nil, nil
	})
	c.run(t)
	if <-written == 1 {
		t.Error("an object was written while no configuration was known")
	}
}

// TestTakeover: a session of a new leader keeps InForce of the same generation until it has verified the policies, but not for longer than a
// period.
func TestTakeover(t *testing.T) {
	const isNot, is = "False NotEvaluated", "True Verified"
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	same, changed := configurationOf("1", initializerOf("a.example.com", "pods")), configurationOf("2", initializerOf("b.example.com", "pods"))
	for _, configuration := range []*v1alpha1.InitializerConfiguration{same, changed} {
		configuration.Generation = 1
		setInForce(configuration, reasonVerified, "by another leader", clock.Now())
	}
	changed.Generation = 2
	removed := newClients(t, same.DeepCopy())
	removed.registry.unsupported = true
	s := removed.session(t, clock)
	s.keepUntil = clock.Now().Add(period)
	if got := removed.review(t, s); !slices.Equal(got, []string{"False NotSupported"}) {
		t.Errorf("another reason: %q", got)
	}
	for name, test := range map[string]struct {
		lost  bool
		after time.Duration
		want  [][]string
	}{
		"in time": {false, 0, [][]string{{is, isNot}, {is, isNot}, {is, is}}},
		"late":    {false, period, [][]string{{is, isNot}, {isNot, isNot}, {is, is}}},
		"deleted": {true, 0, [][]string{{isNot, isNot}, {isNot, isNot}, {is, is}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClients(t, same.DeepCopy(), changed.DeepCopy())
			c.install(t, same, changed)
			if test.lost {
				delete(c.registry.objects, policies+"/"+prefix+"pods")
			}
			s := c.session(t, clock)
			s.keepUntil = clock.Now().Add(period)
			for i, want := range test.want {
				if got := c.review(t, s); !slices.Equal(got, want) {
					t.Errorf("%d: %q, want %q", i, got, want)
				}
				clock.Step(test.after)
			}
			// Another client changes a policy.
			c.registry.add(t, prefix+"pods")
			clock.Step(recheck)
			if got := c.review(t, s); !slices.Equal(got, []string{isNot, isNot}) {
				t.Errorf("changed: %q", got)
			}
		})
	}
}

// TestTakeoverRuns: InForce stays True while a new leader verifies it.
func TestTakeoverRuns(t *testing.T) {
	configuration := configurationOf("c", initializerOf("a.example.com", "pods"))
	setInForce(configuration, reasonVerified, "by another leader", time.Unix(1000, 0))
	c, written := newClients(t, configuration), make(chan *metav1.Condition, 100)
	c.install(t, configuration)
	c.nsinit.PrependReactor("update", "initializerconfigurations", func(action clienttesting.Action) (bool, runtime.Object, error) {
		updated := action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.InitializerConfiguration)
		written <- meta.FindStatusCondition(updated.Status.Conditions, v1alpha1.ConditionInForce)
		return false, nil, nil
	})
	c.run(t)
	for condition := range written {
		if condition.Status != metav1.ConditionTrue {
			t.Errorf("InForce is %s %s", condition.Status, condition.Reason)
		}
		if condition.Message != "by another leader" {
			return
		}
	}
}
