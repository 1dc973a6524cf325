//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package packaging

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestCertManager: with overlays/embedded-cert-manager, the controllers of cert-manager make the CA and the
// certificate, and set the caBundle. A certificate is renewed five times, and no request fails.
func TestCertManager(t *testing.T) {
	i := newInstallation(t, "embedded-cert-manager", "", nil)
	i.Build(t, "test/certmanager", "certmanager", ".")
	i.applyKindsOf(t, "test/certmanager", certManager, "deploy/crds")
	i.Run(t, "certmanager", "--kubeconfig="+i.Kubeconfig())
	i.install(t)

	noneFailed := i.AskAlways(t)
	serving := func() []byte {
		secret, err := i.Core.CoreV1().Secrets("nsinit-system").Get(t.Context(), "nsinit-apiserver-tls", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return bytes.TrimSpace(secret.Data[corev1.TLSCertKey])
	}
	for range 5 {
		last := serving()
		// As cmctl renew does.
		if out, err := i.Kubectl("-n", "nsinit-system", "patch", "certificate", "nsinit-apiserver", "--subresource=status", "--type=json",
			`--patch=[{"op": "add", "path": "/status/conditions/-", "value": {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered"}}]`); err != nil {
			t.Fatal(err, out)
		}
		framework.Eventually(t, "another certificate is served", func(context.Context) error {
			served, err := i.ServedCertificate(t)
			if err != nil {
				return err
			}
			if now := serving(); bytes.Equal(now, last) || !bytes.Equal(now, served) {
				return fmt.Errorf("the Secret has another one: %v", !bytes.Equal(now, last))
			}
			return nil
		})
	}
	namespace := i.newNamespace(t)
	i.WaitReady(t, namespace)
	noneFailed()
}
