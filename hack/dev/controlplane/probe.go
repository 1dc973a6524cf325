/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const (
	// ProbeUser may write, so only a policy refuses its requests.
	ProbeUser = "nsinit-dev:probe"

	// probeLabel is on a namespace that exists while the gate is checked.
	probeLabel = "nsinit-dev/probe"
)

// probeClients returns clients of the administrator and of the probe. They do not retry.
func (c *Cluster) probeClients() (admin, probe kubernetes.Interface, err error) {
	config, err := c.AdminConfig()
	if err != nil {
		return nil, nil, err
	}
	if admin, err = kubernetes.NewForConfig(config); err != nil {
		return nil, nil, err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: ProbeUser, Groups: []string{user.AllAuthenticated}}
	probe, err = kubernetes.NewForConfig(config)
	return admin, probe, err
}

// acts waits until a policy acts, as a check with the clients of the administrator and of the probe finds.
func (c *Cluster) acts(ctx context.Context, check func(admin, probe kubernetes.Interface) error) error {
	admin, probe, err := c.probeClients()
	if err != nil {
		return err
	}
	return poll(ctx, startLimit, 200*time.Millisecond, func() error { return check(admin, probe) })
}

// guardActs waits until the guard is in force.
func (c *Cluster) guardActs(ctx context.Context) error {
	return c.acts(ctx, func(_, probe kubernetes.Interface) error {
		_, err := probe.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceDefault, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"`+v1alpha1.LabelInitializing+`":"true"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return refused("the guard", "nsinit-guard", err)
	})
}

// stampActs waits until nsinit-controller-manager has brought the stamp and the guard of creation into force.
func (c *Cluster) stampActs(ctx context.Context) error {
	return c.acts(ctx, func(admin, probe kubernetes.Interface) error {
		created, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nsinit-dev-dry-run"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return fmt.Errorf("the stamp does not act: %w", err)
		}
		if !helper.IsClosed(created) {
			return fmt.Errorf("the stamp does not act: a new namespace carries %q", created.Labels)
		}
		_, err = probe.CoreV1().Namespaces().Create(ctx, TooLarge(created.Name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return refused("the guard of creation", "nsinit-guard-create", err)
	})
}

// TooLarge returns a namespace with more annotations than the guard of creation allows.
func TooLarge(name string) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for i := range 33 {
		namespace.Annotations[fmt.Sprintf("probe-%d", i)] = ""
	}
	return namespace
}

// removeEarlyWrites removes the webhook that asks clients to retry early writes. With it, the probe would wait instead of
// being refused by the gate.
func (c *Cluster) removeEarlyWrites(ctx context.Context) error {
	_, err := c.Admin(ctx, "delete", "mutatingwebhookconfigurations", "nsinit-early-writes", "--ignore-not-found")
	return err
}

// gateActsAndOpens waits until the gate refuses a write into a namespace that is initializing. Then it starts the controller, and waits
// until it has created the NamespaceLifecycle. A controller that runs already may open the namespace before the write, so each try
// creates a namespace. nsinit-gate-namesakes is created before nsinit-gate, so it is in force by then.
func (c *Cluster) gateActsAndOpens(ctx context.Context) error {
	var namespace *corev1.Namespace
	if err := c.acts(ctx, func(admin, probe kubernetes.Interface) (err error) {
		namespace, err = admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "nsinit-dev-probe-", Labels: map[string]string{probeLabel: "true", v1alpha1.LabelInitializing: "true"},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		_, err = probe.CoreV1().ConfigMaps(namespace.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return refused("the gate", "nsinit-gate", err)
	}); err != nil {
		return err
	}
	if err := c.ensure(ctx, "nsinit-controller-manager", c.answers(lifecycles+"/"+namespace.Name)); err != nil {
		return err
	}
	_, err := c.Admin(ctx, "delete", "namespaces", "--selector", probeLabel, "--wait=false")
	return err
}

// refused returns nil if a policy has refused a request of the probe. The error is that of the request.
func refused(what, policy string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s does not act: it admitted the request of the probe", what)
	case !strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'"):
		return fmt.Errorf("%s does not act: %w", what, err)
	}
	return nil
}
