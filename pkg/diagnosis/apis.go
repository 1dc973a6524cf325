/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package diagnosis

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/installation"
)

// presence says how nsinit's own API was found.
type presence int

const (
	_ presence = iota // APIServices may not be read
	// registered: there is an APIService, and it is available.
	registered
	// down: there is an APIService, and it is not available.
	down
	// missing: there is no APIService.
	missing
)

// examineAPIs looks for aggregated APIs that are not available. While one is not, nobody can
// tell what of it is in a namespace, and no namespace of the cluster goes away.
func (e *examination) examineAPIs(ctx context.Context) {
	list, err := e.APIs.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		e.notExamined("aggregated APIs", err)
		return
	}
	e.nsinit = missing
	for i := range list.Items {
		service := &list.Items[i]
		ours := service.Spec.Group == v1alpha1.SchemeGroupVersion.Group && service.Spec.Version == v1alpha1.SchemeGroupVersion.Version
		reason, since := Unavailable(service)
		if ours {
			e.nsinit = registered
		}
		if reason == "" {
			continue
		}
		e.broken[service.Spec.Group+"/"+service.Spec.Version] = true
		if ours {
			e.nsinit = down
		}
		e.foundAPI(service, ours, reason, since)
	}
}

// Unavailable returns why an aggregated API is not available, and since when, or "".
func Unavailable(service *apiregistrationv1.APIService) (string, *metav1.Time) {
	if service.Spec.Service == nil {
		return "", nil
	}
	switch condition := helper.GetAPIServiceConditionByType(service, apiregistrationv1.Available); {
	case condition == nil:
		return "kube-apiserver has not tried it yet", &service.CreationTimestamp
	case condition.Status == apiregistrationv1.ConditionTrue:
		return "", nil
	default:
		return fmt.Sprintf("%s: %s", condition.Reason, condition.Message), &condition.LastTransitionTime
	}
}

func (e *examination) foundAPI(service *apiregistrationv1.APIService, ours bool, reason string, since *metav1.Time) {
	finding := Finding{Cause: APIUnavailable, State: Stuck, Since: since}
	backend := service.Spec.Service
	switch {
	case e.Phase == Active, e.Phase == Initializing && !ours:
		// It is in the way of deletions alone.
		finding.State = Healthy
	}
	look := []Remedy{
		{Description: "see what kube-apiserver says of it", Command: "kubectl describe apiservice " + service.Name},
		{Description: "see whether its service is there, and has endpoints that are ready",
			Command: fmt.Sprintf("kubectl --namespace %s get service %s; kubectl --namespace %s get endpointslices --selector kubernetes.io/service-name=%s",
				backend.Namespace, backend.Name, backend.Namespace, backend.Name)},
	}
	if ours {
		finding.Cause = NsinitUnavailable
		finding.Message = fmt.Sprintf("nsinit itself is in the way: its API (APIService %s, service %s/%s) is not available (%s); while it is not, no namespace of the cluster goes away, and closed ones stay closed",
			service.Name, backend.Namespace, backend.Name, reason)
		finding.Remedies = append(look,
			Remedy{Description: "see whether nsinit-apiserver runs and what it logs",
				Command: fmt.Sprintf("kubectl --namespace %s get pods; kubectl --namespace %s logs --selector app.kubernetes.io/name=%s --tail=50", backend.Namespace, backend.Namespace, installation.APIServer)},
			Remedy{Description: "start it again", Command: fmt.Sprintf("kubectl --namespace %s rollout restart statefulset/%s", backend.Namespace, installation.APIServer)},
			Remedy{Description: "if nsinit is not wanted any more, uninstall it in the order that docs/operate.md gives",
				Risk: "a gate that is gone lets everybody in, and participants in deletions are not asked any more"})
	} else {
		finding.Message = fmt.Sprintf("the aggregated API %s/%s (APIService %s, service %s/%s) is not available (%s); while it is not, nobody can tell what of it is in a namespace, and no namespace of the cluster goes away",
			service.Spec.Group, service.Spec.Version, service.Name, backend.Namespace, backend.Name, reason)
		finding.Remedies = append(look,
			Remedy{Description: "mend or start the server behind it", Command: fmt.Sprintf("kubectl --namespace %s get pods", backend.Namespace)},
			Remedy{Description: "if nobody uses the API any more, remove it", Command: "kubectl delete apiservice " + service.Name,
				Risk: "objects of this API that its server stored cannot be reached any more, and what they stand for is not cleaned up"})
	}
	e.found(finding)
}

// foundDiscovery reports the groups that could not be discovered although their server is
// said to be available.
func (e *examination) foundDiscovery(failed map[string]error) {
	for _, version := range slices.Sorted(maps.Keys(failed)) {
		if e.broken[version] {
			continue
		}
		e.broken[version] = true
		e.found(Finding{Cause: DiscoveryFailed, State: Stuck,
			Message: fmt.Sprintf("the resources of %s could not be discovered (%v); while they cannot, nobody can tell what of them is in a namespace", version, failed[version]),
			Remedies: []Remedy{
				{Description: "see what its server answers", Command: "kubectl get --raw /apis/" + version},
				{Description: "see who serves it", Command: "kubectl get apiservices"},
			}})
	}
}
