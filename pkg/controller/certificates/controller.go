/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package certificates

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"
)

const (
	// Name is the name of the controller, and its field manager.
	Name = "certificates"

	// keyTrusted holds, in the Secret of the CA, every CA that is to be trusted.
	keyTrusted = "trusted.crt"
	keyCA      = "ca.crt"
	keyCAKey   = "ca.key"

	// settle is how long every kube-apiserver may take to learn of a change of an APIService.
	settle = 10 * time.Second
	// forgetBefore is how long a server may take to read a certificate that was stored: the
	// kubelet brings it about a minute later.
	forgetBefore = 10 * time.Minute
	// look is how often everything is looked at, because anybody could have changed it.
	look = 30 * time.Second
)

// Options say what the certificates are for.
type Options struct {
	// Namespace is that of the Secrets, CASecret keeps the CA and its key, and
	// ServingSecret is the one that nsinit-apiserver mounts.
	Namespace, CASecret, ServingSecret string
	// Names are the DNS names of nsinit-apiserver.
	Names []string
	// APIServices are those whose caBundle is kept.
	APIServices []string
	// CA and Serving are how long certificates are valid. They are renewed with a third
	// of that left.
	CA, Serving time.Duration
}

// Dependencies are what a Controller needs.
type Dependencies struct {
	Core    kubernetes.Interface
	APIs    aggregator.Interface
	Metrics *Metrics
	Clock   clock.Clock
}

// Controller makes and renews certificates.
type Controller struct {
	Dependencies
	options        Options
	publishedSince time.Time
}

// New returns a Controller that is not running yet.
func New(dependencies Dependencies, options Options) *Controller {
	return &Controller{Dependencies: dependencies, options: options}
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	newBackoff := func() wait.Backoff {
		return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: time.Minute}
	}
	backoff := newBackoff()
	for ctx.Err() == nil {
		again, err := c.step(ctx)
		delay := min(again.Sub(c.Clock.Now()), look)
		if err == nil {
			backoff = newBackoff()
		} else if ctx.Err() == nil {
			delay = backoff.Step()
			klog.FromContext(ctx).Error(err, "Cannot keep the certificates, trying again", "delay", delay)
		}
		select {
		case <-ctx.Done():
		case <-c.Clock.After(max(delay, 0)):
		}
	}
	return nil
}

// stored is what was read, which a write changes.
type stored struct {
	state
	caSecret, servingSecret *corev1.Secret // nil: there is none
}

// step does one thing, and returns when to look again.
func (c *Controller) step(ctx context.Context) (time.Time, error) {
	s, err := c.read(ctx)
	if err != nil {
		return time.Time{}, err
	}
	c.Metrics.observe(s.state)
	now := c.Clock.Now()
	do, at := next(s.state, c.policy(), now)
	logger := klog.FromContext(ctx)
	switch do {
	case rest:
		return at, nil
	case makeCA:
		logger.Info("Making a CA", "former", len(s.trusted))
		err = c.makeCA(ctx, s, now)
	case publish:
		logger.Info("Publishing the CAs", "apiservices", c.options.APIServices, "cas", len(s.trusted))
		err = c.publish(ctx, s.trusted)
	case issue:
		logger.Info("Issuing a serving certificate", "names", c.options.Names)
		err = c.issue(ctx, s, now)
	case forget:
		logger.Info("Forgetting former CAs", "former", len(s.trusted)-1)
		err = c.storeCA(ctx, s.caSecret, s.ca, nil)
	}
	return now, err
}

func (c *Controller) policy() policy {
	return policy{names: c.options.Names, ca: c.options.CA, serving: c.options.Serving, settle: settle, forgetBefore: forgetBefore}
}

// read reads everything. What is broken counts as missing, and is made again.
func (c *Controller) read(ctx context.Context) (*stored, error) {
	s := &stored{}
	var err error
	if s.caSecret, err = c.secret(ctx, c.options.CASecret); err != nil {
		return nil, err
	}
	if s.servingSecret, err = c.secret(ctx, c.options.ServingSecret); err != nil {
		return nil, err
	}
	if secret := s.caSecret; secret != nil {
		s.trusted = parse(secret.Data[keyTrusted])
		if s.ca, err = parseKeyPair(secret.Data[keyCA], secret.Data[keyCAKey]); err != nil {
			klog.FromContext(ctx).Error(err, "The Secret of the CA is damaged, another one is made", "secret", klog.KObj(secret))
		}
	}
	if secret := s.servingSecret; secret != nil && len(secret.Data[corev1.TLSCertKey]) > 0 {
		if s.serving, err = parseKeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
			klog.FromContext(ctx).Error(err, "The Secret of the serving certificate is damaged, another one is issued", "secret", klog.KObj(secret))
		}
	}
	if s.published, err = c.published(ctx, s.trusted); err != nil {
		return nil, err
	}
	switch {
	case !equal(s.published, s.trusted):
		c.publishedSince = time.Time{}
	case c.publishedSince.IsZero():
		c.publishedSince = c.Clock.Now()
	}
	s.publishedSince = c.publishedSince
	return s, nil
}

// secret returns a Secret, or nil if there is none.
func (c *Controller) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret, err := c.Core.CoreV1().Secrets(c.options.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	return secret, err
}

// published returns what every APIService trusts, or what one trusts that differs from what is
// wanted.
func (c *Controller) published(ctx context.Context, wanted []*x509.Certificate) ([]*x509.Certificate, error) {
	for _, name := range c.options.APIServices {
		service, err := c.APIs.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if bundle := parse(service.Spec.CABundle); !equal(bundle, wanted) {
			return bundle, nil
		}
	}
	return wanted, nil
}

// makeCA makes a CA. What was trusted so far stays so, as long as it can be.
func (c *Controller) makeCA(ctx context.Context, s *stored, now time.Time) error {
	ca, err := newCA(now, c.options.CA)
	if err != nil {
		return err
	}
	return c.storeCA(ctx, s.caSecret, ca, unexpired(union(s.trusted, s.published), now))
}

// storeCA stores a CA, and former ones.
func (c *Controller) storeCA(ctx context.Context, secret *corev1.Secret, ca *keyPair, former []*x509.Certificate) error {
	certificate, key, err := ca.encode()
	if err != nil {
		return err
	}
	return c.store(ctx, secret, c.options.CASecret, corev1.SecretTypeOpaque, map[string][]byte{
		keyCA: certificate, keyCAKey: key, keyTrusted: encode(union([]*x509.Certificate{ca.certificate}, former)),
	})
}

// issue makes a serving certificate, and puts it where the server reads it.
func (c *Controller) issue(ctx context.Context, s *stored, now time.Time) error {
	serving, err := newServing(s.ca, c.options.Names, now, c.options.Serving)
	if err != nil {
		return err
	}
	certificate, key, err := serving.encode()
	if err != nil {
		return err
	}
	return c.store(ctx, s.servingSecret, c.options.ServingSecret, corev1.SecretTypeTLS, map[string][]byte{
		corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key, keyCA: encode(s.trusted),
	})
}

// store writes a Secret that was read before. Somebody else's write in between is a conflict.
func (c *Controller) store(ctx context.Context, secret *corev1.Secret, name string, kind corev1.SecretType, data map[string][]byte) error {
	secrets := c.Core.CoreV1().Secrets(c.options.Namespace)
	if secret == nil {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind, Data: data}, metav1.CreateOptions{FieldManager: Name})
		return err
	}
	secret = secret.DeepCopy()
	secret.Data = data
	_, err := secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: Name})
	return err
}

// publish has kube-apiserver trust CAs.
func (c *Controller) publish(ctx context.Context, trusted []*x509.Certificate) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": encode(trusted)}})
	if err != nil {
		return err
	}
	for _, name := range c.options.APIServices {
		if _, err := c.APIs.ApiregistrationV1().APIServices().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Name}); err != nil {
			return fmt.Errorf("cannot set the caBundle of APIService %s: %w", name, err)
		}
	}
	return nil
}
