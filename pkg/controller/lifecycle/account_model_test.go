/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"
	"pgregory.net/rapid"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// emptiesAfter is when kube-controller-manager begins to empty a deleted namespace.
const emptiesAfter = 5 * time.Second

// accountModel is the part of the world that concerns the ServiceAccount "default", which a namespace needs.
type accountModel struct {
	account *metav1.PartialObjectMetadata
	// accounts are all versions so far.
	accounts []*metav1.PartialObjectMetadata
	// dead says that kube-controller-manager creates no ServiceAccounts.
	dead bool
	// usable are the namespaces that had a ServiceAccount at some time.
	usable map[types.UID]bool
	// done is when the initializers of each namespace were done first.
	done map[types.UID]time.Time
}

func newAccountModel(t *rapid.T) accountModel {
	return accountModel{accounts: []*metav1.PartialObjectMetadata{nil}, dead: rapid.Bool().Draw(t, "no ServiceAccounts are created"),
		usable: map[types.UID]bool{}, done: map[types.UID]time.Time{}}
}

// accountClient returns a client whose live reads the world answers.
func (w *world) accountClient() (meta.RESTMapper, metadata.Interface) {
	mapper, client := accountClient()
	client.AddReactor("list", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := w.disturb(); err != nil {
			return true, nil, err
		}
		return true, accounts(w.account), nil
	})
	return mapper, client
}

// setAccount stores the ServiceAccount of the namespace, or its absence.
func (w *world) setAccount(account *metav1.PartialObjectMetadata) {
	w.nextVersion()
	w.account, w.accounts = account, append(w.accounts, account)
	w.observe()
}

// observeAccount notes which namespaces have a ServiceAccount.
func (w *world) observeAccount() {
	if w.namespace != nil && w.account != nil {
		w.usable[w.namespace.UID] = true
	}
}

// recordDone writes the end of the last turn into a lifecycle, as the server does.
func (w *world) recordDone(lifecycle *v1alpha1.NamespaceLifecycle) {
	const last = "last"
	if len(helper.Pending(lifecycle)) > 0 || helper.Entry(lifecycle, last) != nil {
		return
	}
	lifecycle.Status.Initializers = append(lifecycle.Status.Initializers, v1alpha1.InitializerStatus{Name: last, EndTime: &metav1.MicroTime{Time: w.clock.Now()}})
	if _, ok := w.done[lifecycle.Spec.NamespaceUID]; !ok {
		w.done[lifecycle.Spec.NamespaceUID] = w.clock.Now()
	}
}

// checkUsable: a gate opens if the namespace had a ServiceAccount, or after the timeout.
func (w *world) checkUsable(uid types.UID) {
	if waited := w.clock.Since(w.done[uid]); !w.usable[uid] && waited < 5*time.Second {
		w.t.Fatalf("the gate opened %s after the last turn, and the namespace never had a ServiceAccount", waited)
	}
}

// accountSteps are the steps of kube-controller-manager.
func (m *model) accountSteps() map[string]step {
	return map[string]step{"kube-controller-manager creates the ServiceAccount": {
		func() bool { return m.alive() && m.account == nil && !m.accountModel.dead },
		func() { m.setAccount(account(worldName, m.clock.Now())) },
	}}
}

// checkReason: once nothing changes any more, an open namespace does not say that it lacks what it has.
func (m *model) checkReason() {
	if m.namespace != nil && m.account != nil && m.alive() && slices.ContainsFunc(m.namespace.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Reason == v1alpha1.ReasonObjectsMissing
	}) {
		m.t.Fatalf("the namespace has its ServiceAccount: %s", m.describe())
	}
}
