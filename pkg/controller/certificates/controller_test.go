/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

const api = "v1alpha1.nsinit.dev"

// harness is a Controller, and what it writes into.
type harness struct {
	*Controller
	t     *testing.T
	core  *fake.Clientset
	apis  *aggregatorfake.Clientset
	clock *clocktesting.FakeClock
}

func setUp(t *testing.T) *harness {
	t.Helper()
	h := &harness{t: t, core: fake.NewClientset(), clock: clocktesting.NewFakeClock(time.Now())}
	h.apis = aggregatorfake.NewSimpleClientset(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: api}})
	var err error
	h.Controller, err = New(Dependencies{Core: h.core, APIs: h.apis, Clock: h.clock, Register: metrics.NewKubeRegistry().Register}, Options{
		Namespace: "n", CASecret: "ca", ServingSecret: "serving", Names: []string{"s.n.svc"}, APIService: api,
		CA: 90 * 24 * time.Hour, Serving: 30 * 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// settles lets the Controller act until there is nothing to do but to wait.
func (h *harness) settles() {
	h.t.Helper()
	for range 10 {
		at, err := h.step(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		if at.After(h.clock.Now()) {
			return
		}
	}
	h.t.Fatal("there is no end of it")
}

func (h *harness) get(name string) *corev1.Secret {
	h.t.Helper()
	secret, err := h.core.CoreV1().Secrets("n").Get(h.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return secret
}

func (h *harness) bundle() []byte {
	h.t.Helper()
	service, err := h.apis.ApiregistrationV1().APIServices().Get(h.t.Context(), api, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return service.Spec.CABundle
}

// holds checks that what is served is what kube-apiserver trusts.
func (h *harness) holds() {
	h.t.Helper()
	serving, err := parseKeyPair(h.get("serving").Data[corev1.TLSCertKey], h.get("serving").Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		h.t.Fatal(err)
	}
	if !trusted(parse(h.bundle()), serving.certificate, h.options.Names, h.clock.Now()) {
		h.t.Error("what is served is not trusted")
	}
}

func TestFromNothing(t *testing.T) {
	h := setUp(t)
	h.settles()
	h.holds()
	if secret := h.get("serving"); secret.Type != corev1.SecretTypeTLS || !bytes.Equal(secret.Data[keyCA], h.bundle()) {
		t.Errorf("the Secret is %v", secret.Type)
	}
	if bytes.Contains(h.bundle(), []byte("PRIVATE")) || len(parse(h.bundle())) != 1 {
		t.Errorf("published: %s", h.bundle())
	}
	before := h.get("serving").Data[corev1.TLSCertKey]
	h.settles()
	if !bytes.Equal(before, h.get("serving").Data[corev1.TLSCertKey]) {
		t.Error("it was issued again")
	}
}

// TestRepair: the controller repairs damaged objects, and the server stays trusted.
func TestRepair(t *testing.T) {
	for name, spoil := range map[string]func(h *harness) error{
		"the CA is deleted": func(h *harness) error {
			return h.core.CoreV1().Secrets("n").Delete(h.t.Context(), "ca", metav1.DeleteOptions{})
		},
		"its key is damaged": func(h *harness) error {
			secret := h.get("ca")
			secret.Data[keyCAKey] = []byte("x")
			_, err := h.core.CoreV1().Secrets("n").Update(h.t.Context(), secret, metav1.UpdateOptions{})
			return err
		},
		"its key is another one": func(h *harness) error {
			secret := h.get("ca")
			secret.Data[keyCAKey] = h.get("serving").Data[corev1.TLSPrivateKeyKey]
			_, err := h.core.CoreV1().Secrets("n").Update(h.t.Context(), secret, metav1.UpdateOptions{})
			return err
		},
		"the certificate is deleted": func(h *harness) error {
			return h.core.CoreV1().Secrets("n").Delete(h.t.Context(), "serving", metav1.DeleteOptions{})
		},
		"the certificate is emptied": func(h *harness) error {
			secret := h.get("serving")
			secret.Data = nil
			_, err := h.core.CoreV1().Secrets("n").Update(h.t.Context(), secret, metav1.UpdateOptions{})
			return err
		},
		"the caBundle is removed": func(h *harness) error {
			_, err := h.apis.ApiregistrationV1().APIServices().Patch(h.t.Context(), api, "application/merge-patch+json", []byte(`{"spec":{"caBundle":null}}`), metav1.PatchOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := setUp(t)
			h.settles()
			if err := spoil(h); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				h.settles()
				h.holds()
				h.clock.Step(settle + time.Second)
			}
			if s, err := h.read(t.Context()); err != nil || s.ca == nil || !trusted([]*x509.Certificate{s.ca.certificate}, s.serving.certificate, h.options.Names, h.clock.Now()) {
				t.Errorf("it is not in order: %+v, %v", s, err)
			}
		})
	}
}

// TestConflict: the write of another client is not overwritten.
func TestConflict(t *testing.T) {
	h := setUp(t)
	h.settles()
	h.clock.Step(61 * 24 * time.Hour)
	refused := errors.New("conflict")
	h.core.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
	if _, err := h.step(context.Background()); !errors.Is(err, refused) {
		t.Errorf("the error is %v", err)
	}
	h.core.ReactionChain = h.core.ReactionChain[1:]
	h.settles()
	h.holds()
	if len(parse(h.bundle())) != 2 {
		t.Errorf("%d CAs are trusted, want the new one and the former", len(parse(h.bundle())))
	}
	h.clock.Step(settle + time.Second)
	h.settles()
	h.holds()
	h.clock.Step(forgetBefore + time.Second)
	h.settles()
	h.holds()
	if left := parse(h.bundle()); len(left) != 1 || !left[0].Equal(first(t, h.get("ca").Data[keyCA])) {
		t.Errorf("%d CAs are trusted", len(left))
	}
}

// TestClockCorrected: after the clock of the node was ahead, the controller replaces what is not valid yet.
func TestClockCorrected(t *testing.T) {
	h := setUp(t)
	now := h.clock.Now()
	h.clock.SetTime(now.Add(time.Hour))
	h.settles()
	h.clock.SetTime(now)
	h.settles()
	h.holds()
}

// TestBounded: an action without effect is not repeated without a delay.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setUp(t)
		h.Clock = clock.RealClock{}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		writes := 0
		h.core.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			if writes++; writes == 100 {
				cancel()
			}
			return true, nil, nil
		})
		if err := h.Run(ctx); err != nil {
			t.Error(err)
		}
		if writes < 2 || writes > 11 {
			t.Errorf("%d writes in 10 s", writes)
		}
	})
}

func first(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	certificates := parse(data)
	if len(certificates) == 0 {
		t.Fatal("there is no certificate")
	}
	return certificates[0]
}
