/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/sdk/initializer"
)

// Provisioner provisions over HTTP.
type Provisioner struct {
	config *HTTPProvisioner
	core   kubernetes.Interface
	clock  clock.Clock

	mu sync.Mutex
	// current keeps connections until the Secret has another version.
	current *server
}

// New returns a Provisioner.
func New(config *HTTPProvisioner, core kubernetes.Interface, clock clock.Clock) *Provisioner {
	return &Provisioner{config: config, core: core, clock: clock}
}

// Initialize provisions, and publishes the result. It is an initializer.Func.
func (p *Provisioner) Initialize(ctx context.Context, namespace *corev1.Namespace) error {
	variables := variables(ctx, namespace)
	if err := p.do(ctx, &p.config.Provision, variables); err != nil {
		return err
	}
	for i := range p.config.Publish {
		publication := &p.config.Publish[i]
		if err := p.publish(ctx, namespace.Name, publication, variables); err != nil {
			return fmt.Errorf("cannot publish %s %q: %w", publication.Kind, publication.Name, err)
		}
	}
	return nil
}

// Finalize deprovisions. It is an initializer.Func.
func (p *Provisioner) Finalize(ctx context.Context, namespace *corev1.Namespace) error {
	if p.config.Deprovision == nil || initializer.NeverInitialized(ctx) {
		return nil
	}
	return p.do(ctx, p.config.Deprovision, variables(ctx, namespace))
}

func variables(ctx context.Context, namespace *corev1.Namespace) map[string]any {
	variables := expressions.Variables(namespace)
	variables["idempotencyKey"] = initializer.IdempotencyKey(ctx)
	return variables
}

// do sends the request of an operation and waits until it is complete. It adds the responses to the
// variables.
func (p *Provisioner) do(ctx context.Context, operation *Operation, variables map[string]any) error {
	server, err := p.server(ctx)
	if err != nil {
		return err
	}
	target, err := server.path(operation.path, variables)
	if err != nil {
		return err
	}
	first, err := server.exchange(ctx, &operation.Request, target, variables)
	if err != nil {
		return err
	}
	variables["operation"] = first
	if operation.Poll == nil {
		return nil
	}
	return p.poll(ctx, server, operation.Poll, variables)
}

// poll repeats a request until the operation is complete.
func (p *Provisioner) poll(ctx context.Context, server *server, poll *Poll, variables map[string]any) error {
	target, err := server.target(poll, variables)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	deadline := p.clock.Now().Add(poll.Timeout.Duration)
	for {
		if _, err := server.exchange(ctx, &poll.Request, target, variables); err != nil {
			return err
		}
		ended, err := poll.until.Holds(variables)
		switch {
		case err != nil:
			return fmt.Errorf("cannot evaluate until: %w", err)
		case ended:
			return nil
		case p.clock.Now().After(deadline):
			return fmt.Errorf("the operation did not complete within %s, retrying it: %s %s", poll.Timeout.Duration, poll.Method, target.Redacted())
		}
		if err := initializer.Progress(ctx, fmt.Sprintf("waiting for the operation %s", target.Path)); err != nil {
			logger.V(2).Info("Cannot report progress", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.clock.After(poll.Interval.Duration):
		}
	}
}

// publish writes an object into the namespace, with this initializer's identity.
func (p *Provisioner) publish(ctx context.Context, namespace string, publication *Publication, variables map[string]any) error {
	data := map[string]string{}
	for key, text := range publication.data {
		value, err := text.Render(variables, nil)
		if err != nil {
			return err
		}
		data[key] = value
	}
	options := metav1.ApplyOptions{FieldManager: p.config.Initializer, Force: true}
	if publication.Kind == "ConfigMap" {
		_, err := p.core.CoreV1().ConfigMaps(namespace).Apply(ctx, applycorev1.ConfigMap(publication.Name, namespace).WithData(data), options)
		return err
	}
	content := map[string][]byte{}
	for key, value := range data {
		content[key] = []byte(value)
	}
	_, err := p.core.CoreV1().Secrets(namespace).Apply(ctx, applycorev1.Secret(publication.Name, namespace).WithData(content), options)
	return err
}
