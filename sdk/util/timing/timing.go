/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package timing has the time limits that several programs of nsinit rely on, and their clock, so that the programs that
// hack/build-failpoints.sh builds can have wrong ones.
package timing

import "time"

const (
	// CreateTimeout bounds the creation of a NamespaceLifecycle, in the controller, and in the server from before it
	// reads the configurations until the lifecycle is stored.
	CreateTimeout = 5 * time.Second
	// MaxClockSkew is the maximum difference between the clocks of two machines. A program that compares its own
	// clock with a time that another machine wrote waits that much longer.
	MaxClockSkew = 10 * time.Second
	// DrainPeriod is how long, after a program has observed the deletion of a configuration, a NamespaceLifecycle may
	// still be created with its initializers. A creation that began after the deletion was stored does not use the
	// configuration. The others began before the deletion was observed, so they end within CreateTimeout of that
	// moment. This holds for any number of servers: each measures the time from the beginning of its requests, and
	// the observer the time since it observed the deletion, so no clocks of two machines are compared.
	DrainPeriod = CreateTimeout
	// ReportInterval is how often a program reports that it serves an initializer.
	ReportInterval = 20 * time.Second
	// ReportOverdue is the age of the last report at which an initializer is not served. One report may fail, and
	// clocks may differ by MaxClockSkew.
	ReportOverdue = 3 * ReportInterval
)
