//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// mount writes files as the kubelet mounts a Secret for a pod.
func mount(ctx context.Context, c *framework.Cluster, dir, secret string) {
	for last := ""; ctx.Err() == nil; time.Sleep(time.Second) {
		stored, err := c.Core.CoreV1().Secrets("nsinit-system").Get(ctx, secret, metav1.GetOptions{})
		if err != nil || stored.ResourceVersion == last {
			continue
		}
		last = stored.ResourceVersion
		for _, key := range []string{corev1.TLSPrivateKeyKey, corev1.TLSCertKey} {
			_ = os.WriteFile(filepath.Join(dir, "."+key), stored.Data[key], 0o600)
		}
		for _, key := range []string{corev1.TLSPrivateKeyKey, corev1.TLSCertKey} {
			_ = os.Rename(filepath.Join(dir, "."+key), filepath.Join(dir, key))
		}
	}
}

// TestCertificates: the controller replaces certificates that another program made, and renews the CA and the
// certificate several times while the server works. No request fails.
func TestCertificates(t *testing.T) {
	c := framework.Connect(t)
	apis := aggregator.NewForConfigOrDie(c.Admin).ApiregistrationV1().APIServices()
	before, err := apis.Get(t.Context(), framework.APIService, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secrets := c.Core.CoreV1().Secrets("nsinit-system")
	ended := func() {
		patch := fmt.Sprintf(`{"spec":{"caBundle":%q}}`, base64.StdEncoding.EncodeToString(before.Spec.CABundle))
		if _, err := apis.Patch(context.Background(), framework.APIService, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"nsinit-ca", "nsinit-apiserver-tls"} {
			if err := secrets.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	}

	// The server reads its certificate where the kubelet would mount it. At first, that is its former one.
	dir := t.TempDir()
	server := c.Arguments(t, "nsinit-apiserver")
	for i, arg := range server {
		for flag, key := range map[string]string{"--tls-cert-file=": corev1.TLSCertKey, "--tls-private-key-file=": corev1.TLSPrivateKeyKey} {
			if path, is := strings.CutPrefix(arg, flag); is {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, key), data, 0o600); err != nil {
					t.Fatal(err)
				}
				server[i] = flag + filepath.Join(dir, key)
			}
		}
	}
	manager := append(c.Arguments(t, "nsinit-controller-manager"), "--certificates", "--certificates-ca-validity=60s", "--certificates-serving-validity=24s")
	c.Dev(t, "stop", "nsinit-apiserver")
	c.Dev(t, "stop", "nsinit-controller-manager")
	t.Cleanup(func() {
		ended()
		c.Dev(t, "start", "nsinit-apiserver")
		c.Dev(t, "start", "nsinit-controller-manager")
		c.WaitServing(t)
	})
	c.Run(t, "nsinit-apiserver", server...)
	c.WaitServing(t)
	framework.Eventually(t, "the API is available", func(ctx context.Context) error { return c.Available(ctx, t) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go mount(ctx, c, dir, "nsinit-apiserver-tls")
	c.Run(t, "nsinit-controller-manager", manager...)

	noneFailed := c.AskAlways(t)
	cas, certificates := map[string]bool{}, map[string]bool{}
	began := time.Now()
	framework.Eventually(t, "the CA was renewed, and the certificate three times", func(ctx context.Context) error {
		for name, seen := range map[string]map[string]bool{"nsinit-ca": cas, "nsinit-apiserver-tls": certificates} {
			secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			data := secret.Data[corev1.TLSCertKey]
			if name == "nsinit-ca" {
				data = secret.Data["ca.crt"]
			}
			seen[string(data)] = true
		}
		if len(cas) < 2 || len(certificates) < 4 {
			return fmt.Errorf("%d CAs and %d certificates so far", len(cas), len(certificates))
		}
		// The server serves the last certificate now.
		served, err := c.ServedCertificate(t)
		if err != nil {
			return err
		}
		if !certificates[string(served)] {
			return errors.New("the server serves another certificate")
		}
		return nil
	})
	t.Logf("in %s, %d CAs and %d certificates were in use", time.Since(began).Round(time.Second), len(cas), len(certificates))
	noneFailed()
	if after, err := apis.Get(t.Context(), framework.APIService, metav1.GetOptions{}); err != nil || len(after.Spec.CABundle) == 0 {
		t.Error(err)
	} else if bundle, err := cert.ParseCertsPEM(after.Spec.CABundle); err != nil || len(bundle) < 2 {
		t.Errorf("the caBundle has %d CAs: %v", len(bundle), err)
	}
}
