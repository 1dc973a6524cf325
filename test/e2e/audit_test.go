//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestAudit: the audit log of kube-apiserver shows who opened a gate, that it was opened once, and who removed the
// finalizer of a namespace.
func TestAudit(t *testing.T) {
	framework.DependsOnKubernetes(t)
	c := framework.Connect(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true})
	_, from := c.AuditSince(t, 0)
	namespace := c.CreateNamespace(t, c.Admin)
	c.WaitCurrent(t, namespace.Name, "one.example.com")
	c.RemoveFirst(t, namespace.Name)
	c.WaitReady(t, namespace.Name)
	c.DeleteNamespace(t, namespace.Name)
	c.ReleaseParticipant(t, namespace.Name, "one.example.com")
	c.WaitNoNamespace(t, namespace.Name)

	framework.Eventually(t, "the audit log contains both", func(context.Context) error {
		events, _ := c.AuditSince(t, from)
		told := map[string]int{}
		for _, event := range events {
			for key, value := range event.Annotations {
				if strings.HasPrefix(key, "nsinit-guard/") && strings.Contains(value, string(namespace.UID)) {
					told[key]++
					if want := "system:serviceaccount:nsinit-system:nsinit-controller-manager"; event.User.Username != want || event.ResponseStatus.Code != 200 {
						t.Errorf("%s by %s, answered with %d", key, event.User.Username, event.ResponseStatus.Code)
					}
				}
			}
		}
		if told["nsinit-guard/gate-opened"] != 1 || told["nsinit-guard/released"] != 1 {
			return errors.New(framework.JSON(t, told))
		}
		return nil
	})
}
