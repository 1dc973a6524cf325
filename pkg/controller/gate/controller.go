/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package gate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/installation"
)

// Name is the name of the controller in logs.
const Name = "gate"

const (
	// period and retryPeriod are the times between two reviews, the latter while the gate is not in force.
	period      = 10 * time.Second
	retryPeriod = 2 * time.Second
	// settle is the time from the stamp to the guard. kube-apiserver evaluates a new binding after less than a second. Meanwhile
	// the guard would refuse what the stamp does not stamp yet.
	settle = 2 * time.Second
)

// Reasons of the events.
const (
	reasonInForce    = "GateInForce"
	reasonNotInForce = "GateNotInForce"
)

// Dependencies is what a Controller works with.
type Dependencies struct {
	Core   kubernetes.Interface
	Nsinit versioned.Interface
	Events record.EventRecorder
	Clock  clock.Clock
	// Namespace is that of nsinit.
	Namespace string
}

// Controller brings the gate into force.
type Controller struct {
	Dependencies
	Objects

	// applied says that this process has applied the objects, which can change with its version.
	applied bool
	// said is what the controller reported last.
	said string
}

// New returns a controller that is not running yet.
func New(d Dependencies) (*Controller, error) {
	objects, err := NewObjects(d.Core, d.Namespace)
	if err != nil {
		return nil, err
	}
	return &Controller{Dependencies: d, Objects: objects}, nil
}

// Run reviews the gate until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), Name))
	for ctx.Err() == nil {
		delay := period
		if err := c.review(ctx); err != nil {
			delay = retryPeriod
			c.report(ctx, corev1.EventTypeWarning, reasonNotInForce, err.Error())
		}
		c.sleep(ctx, delay)
	}
	return nil
}

func (c *Controller) sleep(ctx context.Context, delay time.Duration) {
	timer := c.Clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// review brings the gate into force or out of it. It returns why new namespaces may not be closed.
func (c *Controller) review(ctx context.Context) error {
	off := Object{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, Name: c.Namespace + "/" + installation.Off}
	_, err := c.Core.CoreV1().ConfigMaps(c.Namespace).Get(ctx, installation.Off, metav1.GetOptions{})
	if isOff, err := exists(off, err); err != nil {
		return err
	} else if isOff {
		return c.off(ctx, off)
	}
	stamp, other, err := c.stamps(ctx)
	if err != nil {
		return err
	}
	stamped, err := stamp.Exists(ctx)
	if err != nil {
		return err
	}
	guarded, err := c.Guard.Exists(ctx)
	if err != nil || c.applied && stamped && guarded {
		return err
	}
	if err := c.probe(ctx); err != nil {
		if stamped && guarded {
			// The gate is in force, possibly as a former version left it. It is updated once nsinit works.
			klog.FromContext(ctx).V(2).Info("The gate stays as it is", "err", err)
			return nil
		}
		return fmt.Errorf("new namespaces are not closed yet, because nsinit does not work yet: %w; kubectl nsinit check shows what is wrong", err)
	}
	if err := stamp.Apply(ctx); err != nil {
		return err
	}
	if !stamped {
		c.sleep(ctx, settle)
	}
	if err := c.Guard.Apply(ctx); err != nil {
		return err
	}
	if _, err := other.Remove(ctx, metav1.DeleteOptions{}); err != nil {
		return err
	}
	c.applied = true
	if !stamped || !guarded {
		c.report(ctx, corev1.EventTypeNormal, reasonInForce, fmt.Sprintf("nsinit works: new namespaces are closed until they are initialized (%s, %s)", stamp, c.Guard))
	}
	return nil
}

// off removes the objects.
func (c *Controller) off(ctx context.Context, because Object) error {
	c.applied = false
	for _, object := range c.InOrder() {
		if _, err := object.Remove(ctx, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return fmt.Errorf("new namespaces are not closed, because %s exists; to close them again, run kubectl nsinit on", because)
}

// stamps returns the object that brings the stamp into force, and the one that is not used: if the policy is installed, its
// binding, else the webhook.
func (c *Controller) stamps(ctx context.Context) (used, other Object, err error) {
	policy := Object{TypeMeta: metav1.TypeMeta{Kind: "MutatingAdmissionPolicy"}, Name: installation.Stamp}
	_, err = c.Core.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(ctx, policy.Name, metav1.GetOptions{})
	if installed, err := exists(policy, err); err != nil || installed {
		return c.PolicyStamp, c.WebhookStamp, err
	}
	return c.WebhookStamp, c.PolicyStamp, nil
}

// probe returns why nsinit does not work. In a dry run, kube-apiserver passes a NamespaceLifecycle on, and nsinit-apiserver
// reads its etcd and checks whether it has space.
func (c *Controller) probe(ctx context.Context) error {
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, c.Namespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Create(ctx, &v1alpha1.NamespaceLifecycle{
		ObjectMeta: metav1.ObjectMeta{Name: namespace.Name},
		Spec:       v1alpha1.NamespaceLifecycleSpec{NamespaceUID: namespace.UID},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// report logs what has changed, with an event on the policy of the guard.
func (c *Controller) report(ctx context.Context, eventType, reason, message string) {
	if c.said == message || ctx.Err() != nil {
		return
	}
	c.said = message
	klog.FromContext(ctx).Info("The gate has changed", "reason", reason, "message", message)
	c.Events.Event(&corev1.ObjectReference{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy", Name: installation.GuardCreate}, eventType, reason, message)
}
