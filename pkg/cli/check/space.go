/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// storageSpace checks whether the storage accepts new objects, by creating one in a dry run.
// nsinit-apiserver refuses dry runs, too, while its storage is full.
func (i *inspection) storageSpace(ctx context.Context) {
	const check = "StorageSpace"
	_, err := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta:   metav1.ObjectMeta{GenerateName: "nsinit-check-"},
		Initializers: []v1alpha1.RegisteredInitializer{{Name: "check.nsinit.example.com"}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsForbidden(err):
		i.unknown(check, err)
	case err != nil:
		i.add(check, Problem, `see "When the storage is full" in docs/operate.md`, "no object can be created: %v", err)
	default:
		i.add(check, OK, "", "the storage accepts new objects")
	}
}
