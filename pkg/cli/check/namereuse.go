/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/util/timing"
)

// nameReuse checks the optional component strict-name-reuse, if it is installed.
func (i *inspection) nameReuse(ctx context.Context) {
	const (
		check  = "NameReuse"
		remedy = installAgain + ", with strict-name-reuse"
	)
	_, policyErr := i.Core.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, "nsinit-strict-name-reuse", metav1.GetOptions{})
	list, err := i.Core.CoreV1().ConfigMaps(i.namespace).Get(ctx, installation.RemovedNamespaces, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && apierrors.IsNotFound(policyErr):
		return
	case apierrors.IsNotFound(err):
		i.add(check, Problem, remedy, "ConfigMap %s/%s is missing: without it, no namespace can be created", i.namespace, installation.RemovedNamespaces)
		return
	case err != nil:
		i.unknown(check, err)
		return
	}
	i.compareAll(ctx, delivery{check: check, bad: Problem, remedy: remedy, field: "spec", manifests: []string{artifacts.StrictNameReuse()}})
	for name, value := range list.Data {
		until, err := time.Parse(time.RFC3339, value)
		if err != nil || i.now.Sub(until) < timing.MaxClockSkew {
			continue
		}
		if strings.HasPrefix(name, "_") {
			name = "every namespace"
		}
		i.add(check, Problem, "read the log of nsinit-controller-manager about "+installation.RemovedNamespaces, "%s is still refused, although its period ended at %s: no controller updates the list", name, value)
		return
	}
}
