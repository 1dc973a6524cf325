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
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/util/workers"
)

const (
	// Name is the name of the controller, and its field manager.
	Name = "certificates"

	// keyTrusted is the key of the trusted CAs in the Secret of the CA.
	keyTrusted = "trusted.crt"
	keyCA      = "ca.crt"
	keyCAKey   = "ca.key"

	// settle is the time in which every kube-apiserver sees a change of an APIService.
	settle = 10 * time.Second
	// forgetBefore is the time in which every server reads a new certificate. The kubelet updates
	// the mounted Secret after about a minute.
	forgetBefore = 10 * time.Minute
	// resync is the time between two checks. Another client may change the objects.
	resync = 30 * time.Second

	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
)

// Options configures the certificates.
type Options struct {
	// Namespace is the namespace of the Secrets. CASecret stores the CA and its key. nsinit-apiserver
	// mounts ServingSecret.
	Namespace, CASecret, ServingSecret string
	// Names are the DNS names of nsinit-apiserver.
	Names []string
	// APIService is the APIService whose caBundle is set.
	APIService string
	// CA and Serving are the validity of the certificates. They are renewed when a third of it is left.
	CA, Serving time.Duration
}

// Dependencies is what a Controller works with.
type Dependencies struct {
	Core  kubernetes.Interface
	APIs  aggregator.Interface
	Clock clock.WithTicker
	// Register registers the metric of the controller.
	Register func(metrics.Registerable) error
}

// Controller issues and renews certificates.
type Controller struct {
	Dependencies
	options        Options
	expiration     *metrics.GaugeVec
	publishedSince time.Time
}

// New returns a Controller that is not running yet.
func New(dependencies Dependencies, options Options) (*Controller, error) {
	c := &Controller{Dependencies: dependencies, options: options, expiration: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "nsinit", Subsystem: "certificate", Name: "expiration_timestamp_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Time when the CA or the serving certificate of nsinit-apiserver expires, in seconds since 1970. Each certificate is renewed when a third of its validity is left.",
	}, []string{"certificate"})}
	return c, c.Register(c.expiration)
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	queue := workers.NewQueue(Name, c.Clock, minRetryDelay, maxRetryDelay)
	queue.Add(c.options.CASecret)
	workers.Run(ctx, queue, 1, func(ctx context.Context, key string) error {
		again, err := c.step(ctx)
		if err == nil {
			queue.AddAfter(key, min(max(again.Sub(c.Clock.Now()), minRetryDelay), resync)) // an action without effect is repeated
		}
		return err
	})
	return nil
}

// stored is the state with the Secrets that it was read from.
type stored struct {
	state
	caSecret, servingSecret *corev1.Secret // nil if it does not exist
}

// step takes one action, and returns the time of the next step.
func (c *Controller) step(ctx context.Context) (time.Time, error) {
	s, err := c.read(ctx)
	if err != nil {
		return time.Time{}, err
	}
	for name, pair := range map[string]*keyPair{"ca": s.ca, "serving": s.serving} {
		if pair != nil {
			c.expiration.WithLabelValues(name).Set(float64(pair.certificate.NotAfter.Unix()))
		}
	}
	now := c.Clock.Now()
	do, at := next(s.state, c.options.Names, now)
	logger := klog.FromContext(ctx)
	switch do {
	case rest:
		return at, nil
	case makeCA:
		logger.Info("Creating a CA", "former", len(s.trusted))
		err = c.makeCA(ctx, s, now)
	case publish:
		logger.Info("Publishing the CAs", "apiservice", c.options.APIService, "cas", len(s.trusted))
		err = c.publish(ctx, s.trusted)
	case issue:
		logger.Info("Issuing a serving certificate", "names", c.options.Names)
		err = c.issue(ctx, s, now)
	case forget:
		logger.Info("Removing former CAs", "former", len(s.trusted)-1)
		err = c.storeCA(ctx, s.caSecret, s.ca, nil)
	}
	return now, err
}

// read reads the state. A damaged Secret counts as missing, so that its content is created again.
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
			klog.FromContext(ctx).Error(err, "The Secret of the CA is damaged, creating another CA", "secret", klog.KObj(secret))
		}
	}
	if secret := s.servingSecret; secret != nil && len(secret.Data[corev1.TLSCertKey]) > 0 {
		if s.serving, err = parseKeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
			klog.FromContext(ctx).Error(err, "The Secret of the serving certificate is damaged, issuing another certificate", "secret", klog.KObj(secret))
		}
	}
	service, err := c.APIs.ApiregistrationV1().APIServices().Get(ctx, c.options.APIService, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.published = s.trusted // it is created with them
	case err != nil:
		return nil, err
	default:
		s.published = parse(service.Spec.CABundle)
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

// secret returns a Secret, or nil if it does not exist.
func (c *Controller) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret, err := c.Core.CoreV1().Secrets(c.options.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // it does not exist
	}
	return secret, err
}

// Trusted returns the CAs that clients must trust, in PEM, or nothing before the first one was made.
func (c *Controller) Trusted(ctx context.Context) ([]byte, error) {
	secret, err := c.secret(ctx, c.options.CASecret)
	if secret == nil {
		return nil, err
	}
	return secret.Data[keyTrusted], nil
}

// makeCA creates a CA. The former CAs that have not expired stay trusted.
func (c *Controller) makeCA(ctx context.Context, s *stored, now time.Time) error {
	ca, err := newCA(now, c.options.CA)
	if err != nil {
		return err
	}
	return c.storeCA(ctx, s.caSecret, ca, unexpired(union(s.trusted, s.published), now))
}

// storeCA stores a CA and the former CAs.
func (c *Controller) storeCA(ctx context.Context, secret *corev1.Secret, ca *keyPair, former []*x509.Certificate) error {
	certificate, key, err := ca.encode()
	if err != nil {
		return err
	}
	return c.store(ctx, secret, c.options.CASecret, corev1.SecretTypeOpaque, map[string][]byte{
		keyCA: certificate, keyCAKey: key, keyTrusted: encode(union([]*x509.Certificate{ca.certificate}, former)),
	})
}

// issue creates a serving certificate, and stores it in the Secret that the server mounts.
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

// store writes a Secret. It returns a conflict if the Secret changed since it was read.
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

// publish sets the caBundle of the APIService.
func (c *Controller) publish(ctx context.Context, trusted []*x509.Certificate) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": encode(trusted)}})
	if err != nil {
		return err
	}
	_, err = c.APIs.ApiregistrationV1().APIServices().Patch(ctx, c.options.APIService, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Name})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot set the caBundle of APIService %s: %w", c.options.APIService, err)
	}
	return nil
}
