/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/util/leader"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// Func acts on one namespace. It must be idempotent for each IdempotencyKey.
type Func func(ctx context.Context, namespace *corev1.Namespace) error

// DefaultWorkers is the default of Options.Workers.
const DefaultWorkers = 4

// Options describe an initializer.
type Options struct {
	// Name is the name under which the initializer is registered. Required.
	Name string
	// Initialize populates a namespace. Required, unless InitializeObject is set.
	Initialize Func
	// InitializeObject acts on a pod or Job before it runs. An InitializerConfiguration registers the initializer for
	// these; Registration does not. Nil: the initializer does not act on pods and Jobs.
	InitializeObject ObjectFunc
	// Finalize cleans up after a namespace that is being deleted. It is called after every call of Initialize for the
	// namespace has ended, also if there was none (see NeverInitialized). If a client removed the namespace from storage
	// by force, only the name, the UID and the deletion time of the namespace are set. Nil: the initializer does not
	// take part in deletions.
	Finalize Func
	// Core is a client of the cluster. Required.
	Core kubernetes.Interface
	// Nsinit is a client of the group nsinit.dev. Required.
	Nsinit versioned.Interface
	// Registration registers the initializer, if it is not nil.
	Registration *Registration
	// Election lets one of several replicas act at a time. Nil: this one acts.
	Election *leader.Election
	// Workers is the maximum number of concurrent calls. Zero means DefaultWorkers.
	Workers int
	// GroupOf returns the group of a namespace, such as its creator. The groups have their turn with one namespace each, so that a
	// user who creates many namespaces does not delay those of others. Nil: all namespaces are one group, first in, first out.
	GroupOf func(namespace string) string
	// Alongside, if it is not nil, runs while this replica acts. Its error ends the Runner.
	Alongside func(ctx context.Context, runner *Runner) error
	// DryRun calls Initialize once for each namespace in which the initializer has its turn, with a context for which
	// IsDryRun is true, logs the result, and changes nothing in nsinit. Make the clients of the function with DryRunConfig.
	DryRun bool
	// Events records errors as events of the namespaces. Nil: events are sent to the cluster.
	Events record.EventRecorder
	// Metrics is where the metrics are registered. Nil: the Runner's Handler serves them.
	Metrics prometheus.Registerer
	// Clock is the clock, for tests. Nil: the real one.
	Clock clock.WithTicker
}

// Registration describes how an initializer is registered.
type Registration struct {
	// Configuration is the name of the NamespaceInitializerConfiguration. Configurations act in the order of their names.
	// It is created if it does not exist; otherwise the initializer is added at its end, or stays where it is. Other
	// entries are not changed. Required.
	Configuration string
	// Initializer is the entry when it is created, for example with a FailurePolicy. An entry that exists keeps its
	// settings, except Finalizer, and Holds if the entry does not have it. The Runner sets Name and Finalizer.
	Initializer v1alpha1.RegisteredInitializer
}

// complete sets defaults and returns every error.
func (o *Options) complete() error {
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	if o.Clock == nil {
		o.Clock = timing.SystemClock()
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if problems := helper.ValidateInitializerName(o.Name); len(problems) > 0 {
		wrong("Name %q: %s", o.Name, strings.Join(problems, "; "))
	}
	if o.Initialize == nil && o.InitializeObject == nil {
		wrong("Initialize is missing: give the function that populates a namespace")
	}
	if o.Initialize == nil && (o.Finalize != nil || o.Registration != nil) {
		wrong("Finalize and Registration are for namespaces: give Initialize, too")
	}
	if o.Core == nil {
		wrong("Core is missing: give a client of the cluster")
	}
	if o.Nsinit == nil {
		wrong("Nsinit is missing: give a client of the group nsinit.dev")
	}
	if o.Workers < 0 {
		wrong("Workers is %d: give a positive number, or 0 for the default", o.Workers)
	}
	if o.Registration != nil && o.Registration.Configuration == "" {
		wrong("Registration.Configuration is missing: give the name of a NamespaceInitializerConfiguration")
	}
	if o.Registration != nil && o.Registration.Initializer.Holds != nil && o.Finalize == nil {
		wrong("Registration.Initializer.Holds is %q, but Finalize is missing: give Finalize, or remove Holds", *o.Registration.Initializer.Holds)
	}
	if o.Election != nil {
		if err := o.Election.Validate(); err != nil {
			wrong("Election: %w", err)
		}
	}
	if o.DryRun && (o.Registration != nil || o.Election != nil) {
		wrong("DryRun excludes Registration and Election: it changes nothing")
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

// RetryAfter makes the Runner call the function again after a delay that a server asked for, not after the back-off.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &delayed{err, delay}
}

type delayed struct {
	error
	delay time.Duration
}

func (d *delayed) Unwrap() error             { return d.error }
func (d *delayed) RetryAfter() time.Duration { return d.delay }

type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }
