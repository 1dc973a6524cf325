/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package timing has the time limits that several programs of nsinit rely on.
package timing

import "time"

const (
	// MaxListAge is the maximum age of the list of configurations for a plan, from the beginning of the
	// request for the list.
	MaxListAge = 5 * time.Second
	// CreateTimeout bounds the creation of a NamespaceLifecycle, in the server and in the controller.
	CreateTimeout = 5 * time.Second
	// MaxClockSkew is the maximum difference between the clocks of two machines. A program that compares its own
	// clock with a time that another machine wrote waits that much longer.
	MaxClockSkew = 10 * time.Second
	// DrainPeriod is how long after the deletion of a configuration a NamespaceLifecycle may still be created with
	// its initializers.
	DrainPeriod = MaxListAge + CreateTimeout + MaxClockSkew
	// ReportInterval is how often a program reports that it serves an initializer.
	ReportInterval = 20 * time.Second
	// ReportOverdue is the age of the last report at which an initializer is not served. One report may fail, and
	// clocks may differ by MaxClockSkew.
	ReportOverdue = 3 * ReportInterval
)
