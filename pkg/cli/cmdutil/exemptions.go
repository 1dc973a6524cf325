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

	"github.com/nsinit/nsinit/pkg/installation"
)

// Exemptions reads the list of exemptions.
func (c *Clients) Exemptions(ctx context.Context) (*installation.ExemptionList, error) {
	configMap, err := c.ExemptionsConfigMap(ctx)
	if err != nil {
		return nil, err
	}
	return installation.ParseExemptions(configMap), nil
}

// ExemptionsConfigMap reads the ConfigMap with the list of exemptions.
func (c *Clients) ExemptionsConfigMap(ctx context.Context) (*corev1.ConfigMap, error) {
	namespace := c.InstalledIn(ctx)
	configMap, err := c.Core.CoreV1().ConfigMaps(namespace).Get(ctx, installation.Exemptions, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read the list of exemptions, ConfigMap %s/%s: %w", namespace, installation.Exemptions, err)
	}
	return configMap, nil
}
