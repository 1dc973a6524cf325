/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// state is what the tools see of an object.
type state struct {
	// Kstatus is the status that Flux and Helm compute.
	Kstatus, KstatusMessage string
	// Flux is the status that Flux computes with the health checks of a Kustomization, if they are for this kind.
	Flux string
	// ArgoCD is the result of the health check of Argo CD.
	ArgoCD, ArgoCDMessage string
}

// printStatus prints the state of an object. It has the ConfigMap argocd-cm, and a Kustomization of Flux.
func printStatus(ctx context.Context, in io.Reader, out io.Writer, argocd, kustomization string) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	computed, err := status.Compute(object)
	if err != nil {
		return fmt.Errorf("kstatus: %w", err)
	}
	result := state{Kstatus: computed.Status.String(), KstatusMessage: computed.Message}
	if result.Flux, err = evaluate(ctx, kustomization, object); err != nil {
		return fmt.Errorf("%s: %w", kustomization, err)
	}
	checks, err := readHealthChecks(argocd)
	if err != nil {
		return err
	}
	checked, err := checks.run(object)
	if err != nil {
		return fmt.Errorf("%s: %w", argocd, err)
	}
	result.ArgoCD, result.ArgoCDMessage = checked.status, checked.message
	return json.NewEncoder(out).Encode(result)
}

// evaluate returns the status of an object by the health checks of a Kustomization, or "" if they are for other kinds.
func evaluate(ctx context.Context, kustomization string, object *unstructured.Unstructured) (string, error) {
	checks, err := readHealthCheckExprs(kustomization)
	if err != nil {
		return "", err
	}
	for _, check := range checks {
		if check.APIVersion != object.GetAPIVersion() || check.Kind != object.GetKind() {
			continue
		}
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		if err != nil {
			return "", err
		}
		evaluated, err := evaluator.Evaluate(ctx, object)
		if err != nil {
			return "", err
		}
		return evaluated.Status.String(), nil
	}
	return "", nil
}
