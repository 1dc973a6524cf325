/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package timing holds the bounds on which nsinit's programs agree.
package timing

import "time"

const (
	// MaxListAge is how old the list of configurations may be from which a plan is made. It counts from the
	// beginning of the request.
	MaxListAge = 5 * time.Second
	// CreateTimeout bounds the creation of a NamespaceLifecycle, in the server and in the controller.
	CreateTimeout = 5 * time.Second
	// MaxClockSkew is how far the clocks of two machines may be apart. A program that compares its own clock with a
	// time that another machine wrote waits that much longer.
	MaxClockSkew = 10 * time.Second
	// DrainPeriod is how long after the deletion of a configuration a NamespaceLifecycle may still be created with
	// its initializers.
	DrainPeriod = MaxListAge + CreateTimeout + MaxClockSkew
)
