/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/util/printable"
)

// interval is the time between two checks of an installation that is not complete.
const interval = 2 * time.Second

// await checks until the installation is complete, and prints what it waits for when that changes. It returns the last
// results, and whether the installation is complete.
func (o *Options) await(ctx context.Context) ([]Result, bool) {
	ctx, cancel := cmdutil.WithTimeout(ctx, o.Timeout)
	defer cancel()
	said := ""
	var last []Result
	for {
		results := inspect(ctx, o.Clients)
		if last == nil || ctx.Err() == nil { // requests that were cancelled explain nothing
			last = results
		}
		waiting := incomplete(last)
		if len(waiting) == 0 {
			return last, true
		}
		if message := waiting[0].Check + ": " + printable.Line(waiting[0].Message); message != said {
			said = message
			_, _ = fmt.Fprintf(o.ErrOut, "waiting for %s\n", message)
		}
		select {
		case <-ctx.Done():
			return last, false
		case <-o.Clients.Clock.After(interval):
		}
	}
}

// incomplete returns the results that a complete installation does not have. While kube-apiserver cannot be reached, most checks
// are unknown.
func incomplete(results []Result) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(result Result) bool {
		return result.State != Problem && !result.Unfinished
	})
}
