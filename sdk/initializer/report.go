/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// reportServed reports until the context ends that this process serves the initializer. It logs the first of several
// errors in a row: the initializer acts without reports, too.
func (r *Runner) reportServed(ctx context.Context) {
	logger, failing := klog.FromContext(ctx), false
	for {
		err := r.reportOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			logger.Error(err, "Cannot report that the initializer is served, retrying")
		case err == nil && failing:
			logger.Info("Reported that the initializer is served")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-r.options.Clock.After(wait.Jitter(timing.ReportInterval*9/10, 0.2)):
		}
	}
}

// reportOnce reports to each configuration that registers the initializer. It lists the configurations, because a watch
// would deliver the reports of all other initializers. It also restores what the code decides of the registered entry, which a replica of
// another version, with or without a function Finalize, may have changed.
func (r *Runner) reportOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timing.ReportInterval/2)
	defer cancel()
	patch, err := reportPatch(r.options.Name, r.options.Clock.Now())
	if err != nil {
		return err
	}
	client := r.options.Nsinit.NsinitV1alpha1()
	var errs []error
	ended := func(configuration string, err error) {
		if utilapierrors.IgnoreAbsent(err) != nil {
			errs = append(errs, r.withRemedy(fmt.Errorf("cannot patch the status of configuration %q: %w", configuration, err)))
		}
	}
	if r.options.Initialize != nil {
		list, err := client.NamespaceInitializerConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return r.withRemedy(fmt.Errorf("cannot list the configurations: %w", err))
		}
		for _, configuration := range list.Items {
			i := r.entry(&configuration)
			if i < 0 {
				continue
			}
			if want := r.options.Registration; want != nil && want.Configuration == configuration.Name && configuration.DeletionTimestamp == nil && r.align(&configuration.Initializers[i]) {
				if _, err := client.NamespaceInitializerConfigurations().Update(ctx, &configuration, metav1.UpdateOptions{}); err != nil {
					errs = append(errs, r.withRemedy(fmt.Errorf("cannot update the entry in configuration %q: %w", configuration.Name, err)))
				}
			}
			_, err := client.NamespaceInitializerConfigurations().Patch(ctx, configuration.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			ended(configuration.Name, err)
		}
	}
	if r.options.InitializeObject != nil {
		list, err := client.InitializerConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return errors.Join(append(errs, r.withRemedy(fmt.Errorf("cannot list the InitializerConfigurations: %w", err)))...)
		}
		for _, configuration := range list.Items {
			if slices.ContainsFunc(configuration.Initializers, func(i v1alpha1.Initializer) bool { return i.Name == r.options.Name }) {
				_, err := client.InitializerConfigurations().Patch(ctx, configuration.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
				ended(configuration.Name, err)
			}
		}
	}
	return errors.Join(errs...)
}

// reportPatch returns the strategic merge patch of a report. docs/protocol.md shows the same request.
func reportPatch(name string, now time.Time) ([]byte, error) {
	at := metav1.NewMicroTime(now)
	return json.Marshal(map[string]any{"status": map[string]any{
		"initializers": []v1alpha1.RegisteredInitializerStatus{{Name: name, ReportTime: &at}},
	}})
}

// withRemedy adds to a refusal how the permission is granted.
func (r *Runner) withRemedy(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w; to print the roles to grant, run kubectl nsinit rbac %s", err, r.options.Name)
}
