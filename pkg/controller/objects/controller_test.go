/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/controller/exemptions"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
)

// clients are those of a controller that runs on a cluster with the component.
type clients struct {
	core     *fake.Clientset
	nsinit   *nsinitfake.Clientset
	metadata *metadatafake.FakeMetadataClient
	registry *registry
}

func newClients(configurations ...runtime.Object) *clients {
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: installation.ObjectsGuard}}
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	r := newRegistry()
	return &clients{
		fake.NewClientset(binding, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: installation.Exemptions}},
			&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: installation.ObjectsGuard, UID: "guard"}}),
		nsinitfake.NewClientset(configurations...), r.client(), r,
	}
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

// TestWithoutRights: if the component is installed without its rights, InForce says so. The number of objects that wait is not known.
func TestWithoutRights(t *testing.T) {
	configuration := configurationOf("c", initializerOf("a.example.com", "pods"))
	configuration.Status.PendingObjects = 3
	c := newClients(configuration)
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
	c, tries, written := newClients(), atomic.Int32{}, make(chan int32, 100)
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
