/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// Name is the name of the controller in logs.
const Name = "gate"

const (
	// period and retryPeriod are the times between two reviews, the latter while the gate is not in force.
	period      = 10 * time.Second
	retryPeriod = 2 * time.Second
	// again is the time after which objects are applied again, which another client can change.
	again = 10 * time.Minute
	// settle is the time from the stamp to the guard. kube-apiserver evaluates a new binding after less than a second. Meanwhile
	// the guard would refuse what the stamp does not stamp yet.
	settle = 2 * time.Second
)

// Reasons of the events.
const (
	// eventInForce: new namespaces are closed until they are initialized.
	eventInForce = "GateInForce"
	// eventNotInForce: new namespaces are not closed. The message says why.
	eventNotInForce = "GateNotInForce"
	// eventRegistered: nsinit-controller-manager created the APIService, because a pod of
	// nsinit-apiserver is ready.
	eventRegistered = "APIRegistered"
	// eventUnregistered: nsinit-controller-manager removed the APIService, because
	// kube-apiserver could not reach nsinit-apiserver.
	eventUnregistered = "APIUnregistered"
)

// Dependencies is what a Controller works with.
type Dependencies struct {
	Core   kubernetes.Interface
	Nsinit versioned.Interface
	APIs   aggregator.Interface
	// Trusted returns the CAs of nsinit-apiserver, in PEM, or nothing while there is none. If it is nil, another program sets the
	// caBundle of the APIService.
	Trusted func(ctx context.Context) ([]byte, error)
	Events  record.EventRecorder
	Clock   clock.Clock
	// Namespace is that of nsinit.
	Namespace string
}

// Controller brings the gate into force.
type Controller struct {
	Dependencies
	Objects

	// applied is when this process applied the objects, which can change with its version.
	applied time.Time
	// inForce says whether the gate was in force when a review last read it.
	inForce bool
	// said is what the controller reported last.
	said string
	// warned says whether that was a warning.
	warned bool

	registration registration
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
		c.sleep(ctx, c.reviewAndReport(ctx))
	}
	return nil
}

// reviewAndReport reviews the gate, reports why new namespaces may not be closed, and returns the time until the next review.
func (c *Controller) reviewAndReport(ctx context.Context) time.Duration {
	err := c.review(ctx)
	unread, _ := errors.AsType[*readError](err)
	switch {
	case err == nil:
		c.inForce = true
		return period
	case c.inForce && unread != nil:
		klog.FromContext(ctx).Error(err, "Cannot review the gate, which was in force, retrying")
	default:
		c.inForce = false
		c.report(ctx, corev1.EventTypeWarning, eventNotInForce, err.Error())
	}
	return retryPeriod
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
	registered := c.register(ctx) // also while nsinit is off: namespaces that are closed, or have participants, wait for it
	if err := c.heedOff(ctx); err != nil {
		return err
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
	if err != nil {
		return err
	}
	inForce := stamped && guarded
	c.inForce = inForce
	if err = registered; err == nil {
		if inForce && c.Clock.Since(c.applied) < again {
			if c.warned { // a review has failed meanwhile
				c.reportInForce(ctx, stamp)
			}
			return nil
		}
		err = c.probe(ctx)
	}
	if err != nil {
		if inForce {
			// The gate is in force, possibly as a former version left it. It is updated once nsinit works.
			klog.FromContext(ctx).V(2).Info("The gate stays as it is", "err", err)
			return nil
		}
		return fmt.Errorf("new namespaces are not closed yet, because nsinit does not work yet: %w; kubectl nsinit check shows what is wrong", err)
	}
	// A user can run off meanwhile, and removes what exists until then.
	if err := c.apply(ctx, stamp); err != nil {
		return err
	}
	if !stamped {
		c.sleep(ctx, settle)
		if err := c.heedOff(ctx); err != nil {
			return err
		}
	}
	if err := c.apply(ctx, c.Guard); err != nil {
		return err
	}
	if _, err := other.Remove(ctx, metav1.DeleteOptions{}); err != nil {
		return err
	}
	c.applied = c.Clock.Now()
	if !inForce || c.warned {
		c.reportInForce(ctx, stamp)
	}
	return nil
}

func (c *Controller) reportInForce(ctx context.Context, stamp Object) {
	c.report(ctx, corev1.EventTypeNormal, eventInForce, fmt.Sprintf("nsinit works: new namespaces are closed until they are initialized (%s, %s)", stamp, c.Guard))
}

// apply applies an object, and removes it again if nsinit was turned off meanwhile.
func (c *Controller) apply(ctx context.Context, object Object) error {
	if err := object.Apply(ctx); err != nil {
		return err
	}
	return c.heedOff(ctx)
}

// heedOff returns nil unless nsinit is off. It then removes the objects.
func (c *Controller) heedOff(ctx context.Context) error {
	because := Object{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, Name: c.Namespace + "/" + installation.Off}
	_, err := c.Core.CoreV1().ConfigMaps(c.Namespace).Get(ctx, installation.Off, metav1.GetOptions{})
	if isOff, err := exists(because, err); err != nil || !isOff {
		return err
	}
	c.applied = time.Time{}
	for _, object := range c.InOrder() {
		if _, err := object.Remove(ctx, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return fmt.Errorf("new namespaces are not closed, because %s exists; to close them again, run kubectl nsinit on", because)
}

// stamps returns the object that brings the stamp into force, and the one that is not used: the policy is preferred, and an object is
// used only if the manifests have installed its owner.
func (c *Controller) stamps(ctx context.Context) (used, other Object, err error) {
	policy, err := c.PolicyStamp.Installed(ctx)
	if err != nil {
		return Object{}, Object{}, err
	}
	webhook, err := c.WebhookStamp.Installed(ctx)
	switch {
	case err != nil:
		return Object{}, Object{}, err
	case policy:
		return c.PolicyStamp, c.WebhookStamp, nil
	case webhook:
		return c.WebhookStamp, c.PolicyStamp, nil
	}
	return Object{}, Object{}, errors.New("new namespaces are not closed, because the policy nsinit-stamp is missing: apply the manifests or the chart of nsinit again (before Kubernetes 1.36: manifests with stamp-webhook)")
}

// probe returns why nsinit does not work. In a dry run, kube-apiserver passes a NamespaceLifecycle on, and nsinit-apiserver
// reads its etcd and checks whether it has space. A plan needs every configuration. Without the other policies, tenants could write
// into a closed namespace.
func (c *Controller) probe(ctx context.Context) error {
	bindings := c.Core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	for _, name := range installation.Gates() {
		if _, err := bindings.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("%w: apply the manifests or the chart of nsinit again", err)
		}
	}
	namespace, err := c.Core.CoreV1().Namespaces().Get(ctx, c.Namespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, err := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{}); err != nil {
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
	c.said, c.warned = message, eventType == corev1.EventTypeWarning
	klog.FromContext(ctx).Info("The gate has changed", "reason", reason, "message", message)
	c.Events.Event(&corev1.ObjectReference{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy", Name: installation.GuardCreate}, eventType, reason, message)
}
