/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

// testAlongside: another initializer has its turn at the same time, and reports its progress. The initializer finishes,
// although the NamespaceLifecycle changes, and leaves the other one as it is.
func (s *suite) testAlongside(t *testing.T) {
	s.registerOrdered(t, "zz", alongside, &v1alpha1.InitializerOrdering{})
	namespace := s.create(t, uniqueName())
	s.waitTurn(t, namespace, alongside)
	s.start(t)
	reports := 0
	s.until(t, "the initializer ends its turn in "+namespace.Name, func(ctx context.Context) error {
		lifecycle, err := s.lifecycle(ctx, namespace.Name)
		if err != nil {
			return err
		}
		if entry := helper.Entry(lifecycle, s.Name); entry != nil && entry.EndTime != nil {
			return nil
		}
		reports++ // each report is a conflict for an initializer that is about to finish
		if err := s.report(ctx, namespace, fmt.Sprintf("step %d", reports)); err != nil {
			return err
		}
		return fmt.Errorf("the initializers are %+v", lifecycle.Status.Initializers)
	})
	lifecycle, err := s.lifecycle(t.Context(), namespace.Name)
	if err != nil {
		t.Fatal(err)
	}
	entry := helper.Entry(lifecycle, alongside)
	switch {
	case !slices.Contains(helper.Pending(lifecycle), alongside), helper.Failure(lifecycle) != nil:
		t.Errorf("the initializer ended the turn of %q, which had not finished: %+v", alongside, lifecycle.Spec)
	case entry.State != v1alpha1.InitializerRunning || reports > 0 && entry.Message != fmt.Sprintf("step %d", reports):
		t.Errorf("the initializer changed the entry of %q: %+v", alongside, entry)
	}
	if err := s.Check(t.Context(), namespace); err != nil {
		t.Errorf("the initializer has removed itself, but: %v", err)
	}
	if t.Failed() {
		return
	}
	s.done(t, namespace, alongside)
	s.waitOpen(t, namespace)
}

// report writes the message of the initializer that acts at the same time.
func (s *suite) report(ctx context.Context, namespace *corev1.Namespace, message string) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"initializers": []any{map[string]any{"name": alongside, "message": message}}}})
	if err != nil {
		return err
	}
	_, err = s.nsinit.NsinitV1alpha1().NamespaceLifecycles().Patch(ctx, namespace.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
