/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package provisioner

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/expressions"
	"github.com/nsinit/nsinit/pkg/initializer"
)

// Provisioner provisions over HTTP.
type Provisioner struct {
	config  *Compiled
	core    kubernetes.Interface
	clock   clock.Clock
	servers serverCache
}

// New returns a Provisioner.
func New(config *Compiled, core kubernetes.Interface, clock clock.Clock) *Provisioner {
	return &Provisioner{config: config, core: core, clock: clock}
}

// Initialize provisions, and publishes the result. It is an initializer.Func.
func (p *Provisioner) Initialize(ctx context.Context, namespace *corev1.Namespace) error {
	variables := variables(ctx, namespace)
	if err := p.do(ctx, p.config.Provision, variables); err != nil {
		return err
	}
	for _, publication := range p.config.Publish {
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
func (p *Provisioner) do(ctx context.Context, operation *CompiledOperation, variables map[string]any) error {
	server, err := p.server(ctx)
	if err != nil {
		return err
	}
	target, err := server.path(operation.Path, variables)
	if err != nil {
		return err
	}
	first, err := server.exchange(ctx, &operation.CompiledRequest, target, variables)
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
func (p *Provisioner) poll(ctx context.Context, server *server, poll *CompiledPoll, variables map[string]any) error {
	target, err := server.target(poll, variables)
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	deadline := p.clock.Now().Add(poll.Timeout)
	for {
		if _, err := server.exchange(ctx, &poll.CompiledRequest, target, variables); err != nil {
			return err
		}
		ended, err := poll.Until.Holds(variables)
		switch {
		case err != nil:
			return fmt.Errorf("cannot evaluate until: %w", err)
		case ended:
			return nil
		case p.clock.Now().After(deadline):
			return fmt.Errorf("the operation did not complete within %s, retrying it: %s %s", poll.Timeout, poll.Method, target.Redacted())
		}
		if err := initializer.Progress(ctx, fmt.Sprintf("waiting for the operation %s", target.Path)); err != nil {
			logger.V(2).Info("Cannot report progress", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.clock.After(poll.Interval):
		}
	}
}

// publish writes an object into the namespace, with this initializer's identity.
func (p *Provisioner) publish(ctx context.Context, namespace string, publication CompiledPublication, variables map[string]any) error {
	data := map[string]string{}
	for key, text := range publication.Data {
		value, err := text.Render(variables, nil)
		if err != nil {
			return err
		}
		data[key] = value
	}
	options := metav1.ApplyOptions{FieldManager: p.config.Initializer, Force: true}
	var err error
	switch publication.Kind {
	case "ConfigMap":
		_, err = p.core.CoreV1().ConfigMaps(namespace).Apply(ctx, applycorev1.ConfigMap(publication.Name, namespace).WithData(data), options)
	case "Secret":
		content := map[string][]byte{}
		for key, value := range data {
			content[key] = []byte(value)
		}
		_, err = p.core.CoreV1().Secrets(namespace).Apply(ctx, applycorev1.Secret(publication.Name, namespace).WithData(content), options)
	default:
		err = errors.New("kind must be ConfigMap or Secret")
	}
	return err
}
