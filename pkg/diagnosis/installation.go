/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

const (
	notInstalled             = "nsinit is not installed, or nsinit-apiserver is not ready (APIService v1alpha1.nsinit.dev does not exist)"
	kubeControllerManager    = "kube-controller-manager"
	namespaceControllerLease = "kube-system/" + kubeControllerManager
)

// Installation is what was read of nsinit, and of the aggregated APIs that are registered beside its own. Its methods
// judge one fact each. They return a Healthy finding without a cause if nothing is wrong, and an error if the
// fact could not be read.
type Installation struct {
	// Time is when the reads began.
	Time        time.Time
	APIServices Answer[[]apiregistrationv1.APIService]
	Lifecycle   Answer[*v1alpha1.NamespaceLifecycle]
	// Controller is the Lease of nsinit-controller-manager.
	Controller Answer[*coordinationv1.Lease]
	// Guard is nsinit's policy for new namespaces. It is read if there is no APIService, which can also be an outage.
	Guard Answer[*admissionregistrationv1.ValidatingAdmissionPolicy]
}

// APIService returns nsinit's APIService, or nil.
func (i Installation) APIService() *apiregistrationv1.APIService {
	n := slices.IndexFunc(i.APIServices.Object, isNsinit)
	if n < 0 {
		return nil
	}
	return &i.APIServices.Object[n]
}

// Namespace returns the namespace into which nsinit is installed. Without an APIService, it is that of the Lease of
// nsinit-controller-manager. If neither was found, it is the default.
func (i Installation) Namespace() string {
	if service := i.APIService(); service != nil {
		return NamespaceOf(service)
	}
	if i.Controller.Object != nil {
		return i.Controller.Object.Namespace
	}
	return installation.DefaultNamespace
}

// NamespaceOf returns the namespace of nsinit that its APIService names.
func NamespaceOf(service *apiregistrationv1.APIService) string {
	if service.Spec.Service == nil {
		return installation.DefaultNamespace
	}
	return service.Spec.Service.Namespace
}

// controllerLease is the Lease of nsinit-controller-manager, for people.
func (i Installation) controllerLease() string {
	return i.Namespace() + "/" + installation.ControllerManager
}

// finding returns a finding about nsinit.
func (i Installation) finding(cause Cause, state State, since *metav1.Time, message string, w words) Finding {
	all := words{"INSTALLED": {i.Namespace()}}
	maps.Copy(all, w)
	return newFinding(cause, state, since, message, all)
}

// API judges whether nsinit's API is registered and available. nsinit-controller-manager removes the registration during an outage.
func (i Installation) API() (Finding, error) {
	if i.APIServices.Err != nil {
		return Finding{}, i.APIServices.Err
	}
	if service := i.APIService(); service != nil {
		return judgeAPI(*service), nil
	}
	if lease, _ := judgeLease(i.Controller, i.controllerLease(), i.Time); lease == leaseHeld || i.Guard.Object != nil {
		return i.finding(NsinitUnavailable, Stuck, nil, "the API of nsinit is not registered (APIService "+installation.APIService+" does not exist), because no pod of nsinit-apiserver is ready, "+
			"or kube-apiserver does not reach it: closed namespaces stay closed, and none that waits for a participant is removed",
			words{"SERVER": {i.Namespace()}, "SERVICE": {installation.APIServer}}), nil
	}
	return i.finding(NsinitUninstalled, Stuck, nil, notInstalled, nil), nil
}

// Lifecycles judges whether nsinit-apiserver serves NamespaceLifecycles. It refuses to if its storage was lost.
func (i Installation) Lifecycles() (Finding, error) {
	switch err := i.Lifecycle.Err; {
	case apierrors.IsForbidden(err):
		return Finding{}, err
	case utilapierrors.IgnoreAbsent(err) != nil:
		return i.finding(NsinitRefuses, Stuck, nil, fmt.Sprintf("nsinit-apiserver does not serve NamespaceLifecycles, so no namespace opens, and none that waits for a participant is removed: %v", err), nil), nil
	}
	return Finding{State: Healthy, Message: "NamespaceLifecycles are served"}, nil
}

// ControllerManager judges whether an instance of nsinit-controller-manager is the leader.
func (i Installation) ControllerManager() (Finding, error) {
	state, text := judgeLease(i.Controller, i.controllerLease(), i.Time)
	switch state {
	case leaseUnknown:
		return Finding{}, i.Controller.Err
	case leaseHeld:
		return Finding{State: Healthy, Message: text}, nil
	}
	return i.finding(NsinitControllerDown, Stuck, nil, "nsinit-controller-manager does not run, so no namespace opens, and none that waits for a participant is removed: "+text, nil), nil
}

// leaseState is what a Lease says of its holder.
type leaseState int

const (
	leaseUnknown leaseState = iota
	// leaseHeld: the holder renews the Lease.
	leaseHeld
	// leaseLapsed: the last holder does not run any more.
	leaseLapsed
	// leaseAbsent: the Lease does not exist. Either no holder ever ran, or holders use another lock.
	leaseAbsent
)

// judgeLease returns the state of a Lease, in words as well.
func judgeLease(lease Answer[*coordinationv1.Lease], name string, now time.Time) (leaseState, string) {
	switch {
	case apierrors.IsNotFound(lease.Err):
		return leaseAbsent, "Lease " + name + " does not exist"
	case lease.Object == nil:
		return leaseUnknown, "Lease " + name + " cannot be read"
	}
	spec := lease.Object.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil {
		return leaseLapsed, "Lease " + name + " has no holder"
	}
	valid := timing.MaxClockSkew
	if spec.LeaseDurationSeconds != nil {
		valid += time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	if now.Sub(spec.RenewTime.Time) > valid {
		return leaseLapsed, fmt.Sprintf("%s has not renewed Lease %s since %s", *spec.HolderIdentity, name, spec.RenewTime.UTC().Format(time.RFC3339))
	}
	return leaseHeld, fmt.Sprintf("%s holds Lease %s", *spec.HolderIdentity, name)
}

// unavailableAPIs reports aggregated APIs that are not available. While one is not, Kubernetes
// removes no namespace of the cluster.
func unavailableAPIs(o Observation) []Finding {
	var found []Finding
	for _, service := range o.APIServices.Object {
		f := judgeAPI(service)
		if f.State == Healthy {
			continue
		}
		switch phase := o.phase(); {
		case phase == Active, phase == Initializing && f.Cause == APIUnavailable:
			f.State = Healthy // it blocks deletions only
		case phase == Terminating && f.Cause == APIUnavailable && o.lacksService(&service):
			f.fix(fmt.Sprintf("remove APIService %q, whose service %s/%s does not exist", service.Name, service.Spec.Service.Namespace, service.Spec.Service.Name),
				unreachable, remove("/apis/apiregistration.k8s.io/v1/apiservices/"+service.Name, &service, nil))
		}
		found = append(found, f)
	}
	return found
}

// judgeAPI judges whether an API is available.
func judgeAPI(service apiregistrationv1.APIService) Finding {
	backend, condition := service.Spec.Service, helper.GetAPIServiceConditionByType(&service, apiregistrationv1.Available)
	if backend == nil || condition != nil && condition.Status == apiregistrationv1.ConditionTrue {
		return Finding{State: Healthy, Message: service.Name + " is available"}
	}
	reason, since := "kube-apiserver has not tried it yet", &service.CreationTimestamp
	if condition != nil {
		reason, since = fmt.Sprintf("%s: %s", condition.Reason, condition.Message), &condition.LastTransitionTime
	}
	cause, what, effect := APIUnavailable, groupVersion(service).String(), "Kubernetes cannot determine which of its objects are in a namespace, and removes no namespace of the cluster"
	if isNsinit(service) {
		cause, what, effect = NsinitUnavailable, "nsinit", "closed namespaces stay closed, and Kubernetes removes no namespace of the cluster"
	}
	return newFinding(cause, Stuck, since, fmt.Sprintf("the API of %s (APIService %s, service %s/%s) is not available (%s): %s", what, service.Name, backend.Namespace, backend.Name, reason, effect),
		words{"APISERVICE": {service.Name}, "SERVER": {backend.Namespace}, "INSTALLED": {backend.Namespace}, "SERVICE": {backend.Name}})
}

func groupVersion(service apiregistrationv1.APIService) schema.GroupVersion {
	return schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
}

func isNsinit(service apiregistrationv1.APIService) bool {
	return groupVersion(service) == v1alpha1.SchemeGroupVersion
}

// isUnavailable reports whether an API is known to be unavailable.
func (o Observation) isUnavailable(version schema.GroupVersion) bool {
	return slices.ContainsFunc(o.APIServices.Object, func(service apiregistrationv1.APIService) bool {
		return groupVersion(service) == version && judgeAPI(service).State != Healthy
	})
}

// isBroken reports whether another finding explains why objects of an API cannot be listed.
func (o Observation) isBroken(version schema.GroupVersion) bool {
	return o.isUnavailable(version) || slices.ContainsFunc(o.DiscoveryErrs, func(err error) bool {
		groups, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err)
		return ok && groups.Groups[version] != nil
	})
}

// undiscovered reports APIs that are not known to be unavailable, and cannot be discovered.
func undiscovered(o Observation) []Finding {
	var found []Finding
	add := func(what, path string, err error) {
		found = append(found, newFinding(DiscoveryFailed, Stuck, nil,
			fmt.Sprintf("the resources of %s cannot be discovered (%v), so Kubernetes cannot determine which of their objects are in a namespace", what, err), words{"PATH": {path}}))
	}
	for _, err := range o.DiscoveryErrs {
		groups, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err)
		if !ok {
			add("the cluster", "/apis", err)
			continue
		}
		for version, err := range groups.Groups {
			if !o.isUnavailable(version) {
				add(version.String(), "/apis/"+version.String(), err)
			}
		}
	}
	return found
}
