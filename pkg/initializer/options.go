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

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/validation"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
)

// Func populates one namespace. It must be idempotent for one UID.
type Func func(ctx context.Context, namespace *corev1.Namespace) error

// DefaultWorkers is the number of namespaces that are initialized at the same time unless
// Options say otherwise.
const DefaultWorkers = 4

// Options describe an initializer.
type Options struct {
	// Name is the name under which the initializer is registered. Required.
	Name string
	// Initialize populates a namespace. Required.
	Initialize Func
	// Core is a client of the cluster. Required.
	Core kubernetes.Interface
	// Nsinit is a client of the group nsinit.dev. Required.
	Nsinit versioned.Interface
	// Workers is the number of namespaces that are initialized at the same time,
	// DefaultWorkers if it is zero.
	Workers int
	// Clock is the time, the real one if it is nil. Tests set it.
	Clock clock.WithTicker
}

// complete fills in defaults and returns everything that is wrong.
func (o *Options) complete() error {
	var errs []error
	if problems := validation.ValidateInitializerName(o.Name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("Name %q: %s", o.Name, strings.Join(problems, "; "))) //nolint:staticcheck // the field's name
	}
	if o.Initialize == nil {
		errs = append(errs, errors.New("Initialize is missing: give the function that populates a namespace")) //nolint:staticcheck // as above
	}
	if o.Core == nil {
		errs = append(errs, errors.New("Core is missing: give a client of the cluster")) //nolint:staticcheck // as above
	}
	if o.Nsinit == nil {
		errs = append(errs, errors.New("Nsinit is missing: give a client of the group nsinit.dev")) //nolint:staticcheck // as above
	}
	if o.Workers < 0 {
		errs = append(errs, fmt.Errorf("Workers is %d: give a positive number, or 0 for the default", o.Workers)) //nolint:staticcheck // as above
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return utilerrors.NewAggregate(errs)
}

// Fail makes of an error one that no retry can mend: the initialization ends with it, and
// the namespace is deleted.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	return &failure{err}
}

type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }
