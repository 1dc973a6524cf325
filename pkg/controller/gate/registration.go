/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/installation"
)

const (
	// patience is how long kube-apiserver may fail to reach nsinit-apiserver. If its pods are ready all the same, its API is registered
	// again after retryReached.
	patience     = time.Minute
	retryReached = 2 * time.Minute

	managedBy = "app.kubernetes.io/managed-by"
	// injectCA is the annotation with which cert-manager maintains the caBundle.
	injectCA = "cert-manager.io/inject-ca-from"
	// role is the ClusterRole with which the APIService is removed.
	role = "nsinit:controller-manager"
)

// registration is what the controller knows of the APIService.
type registration struct {
	// since is when the controller first saw that the API is not available, as it is since the transition that kube-apiserver reports. It
	// is not registered before again.
	since, again time.Time
	transition   metav1.Time
	// because is why the APIService was removed.
	because string
}

// register registers the API of nsinit while a pod of nsinit-apiserver is ready. While an API that is registered does not answer,
// Kubernetes removes no namespace. So the registration is removed if kube-apiserver does not reach nsinit-apiserver, unless a user
// made it.
func (c *Controller) register(ctx context.Context) error {
	services, r, now := c.APIs.ApiregistrationV1().APIServices(), &c.registration, c.Clock.Now()
	service, err := services.Get(ctx, installation.APIService, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if now.Before(r.again) {
			return fmt.Errorf("kube-apiserver did not reach nsinit-apiserver (%s), so its API is registered again at %s", r.because, r.again.UTC().Format(time.RFC3339))
		}
		return c.createAPIService(ctx)
	case err != nil:
		return fmt.Errorf("cannot read APIService %s: %w", installation.APIService, err)
	case service.Spec.Service == nil:
		return fmt.Errorf("kube-apiserver serves %s itself, so nsinit-apiserver cannot: delete the CustomResourceDefinitions of the group nsinit.dev", installation.APIService)
	}
	available := helper.GetAPIServiceConditionByType(service, apiregistrationv1.Available)
	if service.Labels[managedBy] != installation.ControllerManager || available == nil || available.Status == apiregistrationv1.ConditionTrue {
		r.since = time.Time{}
		return nil
	}
	// An API that was available meanwhile has another transition.
	if r.since.IsZero() || !r.transition.Equal(&available.LastTransitionTime) {
		r.since, r.transition = now, available.LastTransitionTime
	}
	if now.Sub(r.since) < patience {
		return nil // the probe says what is wrong
	}
	if err := services.Delete(ctx, service.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(service.UID))}); err != nil {
		return fmt.Errorf("cannot delete APIService %s: %w", service.Name, err)
	}
	*r = registration{because: available.Message}
	when := "as soon as a pod of nsinit-apiserver is ready"
	if c.podReady(ctx) == nil {
		r.again = now.Add(retryReached)
		when = "at " + r.again.UTC().Format(time.RFC3339)
	}
	err = fmt.Errorf("kube-apiserver does not reach nsinit-apiserver (%s), so APIService %s is removed, and created again %s: otherwise Kubernetes would remove no namespace of the cluster", r.because, service.Name, when)
	c.report(ctx, corev1.EventTypeWarning, eventUnregistered, err.Error())
	return err
}

// createAPIService creates the APIService if nsinit-apiserver is ready.
func (c *Controller) createAPIService(ctx context.Context) error {
	backend, err := c.Core.CoreV1().Services(c.Namespace).Get(ctx, installation.APIServer, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := c.podReady(ctx); err != nil {
		return err
	}
	object := &apiregistrationv1.APIService{}
	if err := yaml.UnmarshalStrict([]byte(installation.InNamespace(artifacts.APIService(), c.Namespace)), object); err != nil {
		return err
	}
	if len(backend.Spec.Ports) > 0 {
		object.Spec.Service.Port = new(backend.Spec.Ports[0].Port)
	}
	if c.Trusted == nil {
		object.Annotations = map[string]string{injectCA: c.Namespace + "/" + installation.APIServer}
	} else if object.Spec.CABundle, err = c.Trusted(ctx); err != nil {
		return err
	} else if len(object.Spec.CABundle) == 0 {
		return errors.New("its certificate is not issued yet")
	}
	owner, err := c.Core.RbacV1().ClusterRoles().Get(ctx, role, metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: owner.Name, UID: owner.UID}}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	// The permission to create names the object, so it covers only server-side apply.
	if _, err := c.APIs.ApiregistrationV1().APIServices().Patch(ctx, object.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: installation.ControllerManager, Force: new(true)}); err != nil {
		return fmt.Errorf("cannot create APIService %s: %w", object.Name, err)
	}
	c.report(ctx, corev1.EventTypeNormal, eventRegistered, fmt.Sprintf("a pod of nsinit-apiserver is ready: APIService %s is created", object.Name))
	return nil
}

// podReady returns an error if no pod of nsinit-apiserver is ready.
func (c *Controller) podReady(ctx context.Context) error {
	endpoints, err := c.Core.DiscoveryV1().EndpointSlices(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + installation.APIServer})
	if err != nil {
		return err
	}
	for _, slice := range endpoints.Items {
		if slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }) {
			return nil
		}
	}
	return fmt.Errorf("no pod of nsinit-apiserver is ready (kubectl --namespace %s get pods)", c.Namespace)
}
