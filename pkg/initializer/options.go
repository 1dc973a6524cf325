/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/util/leader"
	"github.com/nsinit/nsinit/pkg/util/systemclock"
)

// Func acts on one namespace. It must be idempotent for one IdempotencyKey.
type Func func(ctx context.Context, namespace *corev1.Namespace) error

// DefaultWorkers is the number of namespaces that are worked on at the same time unless
// Options say otherwise.
const DefaultWorkers = 4

// Options describe an initializer.
type Options struct {
	// Name is the name under which the initializer is registered. Required.
	Name string
	// Initialize populates a namespace. Required.
	Initialize Func
	// Finalize cleans up after a namespace that is being deleted. It is called after
	// every call of Initialize for the namespace has ended, also where Initialize never
	// was called, which NeverInitialized tells. If somebody removed the namespace by
	// force, the function gets one that has nothing but its name, its UID and the time of
	// its deletion. Without the function, the initializer takes no part in deletions.
	Finalize Func
	// Core is a client of the cluster. Required.
	Core kubernetes.Interface
	// Nsinit is a client of the group nsinit.dev. Required.
	Nsinit versioned.Interface
	// Registration registers the initializer, if it is not nil.
	Registration *Registration
	// Election lets one of several replicas act at a time. Nil: this one acts.
	Election *leader.Election
	// Workers is the number of namespaces that are worked on at the same time,
	// DefaultWorkers if it is zero.
	Workers int
	// Alongside runs while this replica acts, and until its context ends. Its error ends the
	// Runner. Nil: nothing does.
	Alongside func(ctx context.Context, runner *Runner) error
	// DryRun calls Initialize once for each namespace whose turn it is, with a context of
	// which IsDryRun is true, logs what comes of it, and changes nothing in nsinit. Make
	// the clients of the function with DryRunConfig.
	DryRun bool
	// Events records what went wrong on the namespaces. Nil: events are sent to the cluster.
	Events record.EventRecorder
	// Metrics is where the metrics are registered. Nil: with the Runner's Handler alone.
	Metrics metrics.KubeRegistry
	// Clock is the time, the real one if it is nil. Tests set it.
	Clock clock.WithTicker
}

// Registration says how an initializer is registered.
type Registration struct {
	// Configuration is the name of the NamespaceInitializerConfiguration. Configurations
	// act in the order of their names. It is created if it does not exist; if it does, the
	// initializer is added at its end, or kept where it is. What somebody else registered
	// in it stays. Required.
	Configuration string
	// Initializer is the entry when it is created, for example with a FailurePolicy. An entry
	// that exists keeps its own settings. The Runner sets Name and Finalizer.
	Initializer v1alpha1.RegisteredInitializer
}

// complete fills in defaults and returns everything that is wrong.
func (o *Options) complete() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if problems := validation.ValidateInitializerName(o.Name); len(problems) > 0 {
		wrong("Name %q: %s", o.Name, strings.Join(problems, "; "))
	}
	if o.Initialize == nil {
		errs = append(errs, errors.New("Initialize is missing: give the function that populates a namespace")) //nolint:staticcheck // the field's name
	}
	if o.Core == nil {
		errs = append(errs, errors.New("Core is missing: give a client of the cluster")) //nolint:staticcheck // as above
	}
	if o.Nsinit == nil {
		errs = append(errs, errors.New("Nsinit is missing: give a client of the group nsinit.dev")) //nolint:staticcheck // as above
	}
	if o.Workers < 0 {
		wrong("Workers is %d: give a positive number, or 0 for the default", o.Workers)
	}
	if o.Registration != nil && o.Registration.Configuration == "" {
		wrong("Registration.Configuration is missing: give the name of a NamespaceInitializerConfiguration")
	}
	if o.Election != nil {
		if err := o.Election.Validate(); err != nil {
			wrong("Election: %w", err)
		}
	}
	if o.DryRun && (o.Registration != nil || o.Election != nil) {
		wrong("DryRun excludes Registration and Election: it changes nothing")
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.Clock == nil {
		o.Clock = systemclock.New()
	}
	return utilerrors.NewAggregate(errs)
}

// Fail marks err as permanent: Initialize is not retried, the initialization fails and the namespace is deleted.
// Finalize is always retried.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	return &failure{err}
}

// RetryAfter makes of an error one after which the function is called again when a delay is over,
// which somebody else asked for, instead of the Runner's own.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &delayed{err, delay}
}

type delayed struct {
	err   error
	delay time.Duration
}

func (d *delayed) Error() string             { return d.err.Error() }
func (d *delayed) Unwrap() error             { return d.err }
func (d *delayed) RetryAfter() time.Duration { return d.delay }

type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
