/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/pkg/installation"
)

// ExemptionsSource is the list of exemptions, for people.
const ExemptionsSource = "ConfigMap " + installation.Namespace + "/" + installation.Exemptions

// Exemptions reads the list of exemptions.
func Exemptions(ctx context.Context, core kubernetes.Interface) (*installation.ExemptionList, error) {
	configMap, err := ExemptionsConfigMap(ctx, core)
	if err != nil {
		return nil, err
	}
	return installation.ParseExemptions(configMap), nil
}

// ExemptionsConfigMap reads the ConfigMap with the list of exemptions.
func ExemptionsConfigMap(ctx context.Context, core kubernetes.Interface) (*corev1.ConfigMap, error) {
	configMap, err := core.CoreV1().ConfigMaps(installation.Namespace).Get(ctx, installation.Exemptions, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read the list of exemptions, %s: %w", ExemptionsSource, err)
	}
	return configMap, nil
}
