/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// HasFailpoints knows the failpoints of programs that are built with them, but for the one of SkewsClocks.
type HasFailpoints interface {
	// Failpoints returns the names of the failpoints of a program, sorted.
	Failpoints(ctx context.Context, program string) ([]string, error)
	// SetFailpoint chooses what a failpoint does, in gofail's terms.
	SetFailpoint(ctx context.Context, program, failpoint, terms string) error
}

// FailpointOff ends what SetFailpoint chose.
const FailpointOff = "off"

// failpointFaults end or delay a program between a read and a write, or between two writes.
func failpointFaults() []Fault {
	var all []Fault
	for _, kind := range []string{nsinitCM, population} {
		all = append(all,
			Fault{Name: "crash at a failpoint of " + kind, Description: kind + " crashes at a failpoint", Programs: []string{kind}, Capability: Failpoints, Hold: 1500 * time.Millisecond, Rest: 500 * time.Millisecond,
				// The n-th time that it is reached.
				Inject: atFailpoint(kind, func(e *Env) string { return fmt.Sprintf("%d*off->1*panic", e.Random.IntN(3)) })},
			Fault{Name: "delay at a failpoint of " + kind, Description: kind + " waits for 1 s at a failpoint", Programs: []string{kind}, Capability: Failpoints, Hold: 1500 * time.Millisecond, Rest: 200 * time.Millisecond,
				Inject: atFailpoint(kind, func(*Env) string { return "sleep(1000)" })},
		)
	}
	return all
}

// atFailpoint sets one failpoint, in every replica: only the leader reaches it. A replica that ended is
// restarted by what supervises it, and has forgotten the failpoint then.
func atFailpoint(kind string, terms func(e *Env) string) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		topology, ok := e.Topology.(HasFailpoints)
		if !ok {
			return nil, errors.New("there are no failpoints")
		}
		programs := replicas(e, kind)
		names, err := topology.Failpoints(ctx, programs[0])
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("%s has no failpoints", kind)
		}
		name, chosen := names[e.Random.IntN(len(names))], terms(e)
		return act(ctx, topology, programs, name, chosen)
	}
}

// act chooses what a failpoint does in programs, and returns what ends it.
func act(ctx context.Context, topology HasFailpoints, programs []string, name, terms string) (healer, error) {
	set := func(ctx context.Context, terms string) error {
		return Retry(ctx, func(ctx context.Context) error {
			var errs []error
			for _, program := range programs {
				errs = append(errs, topology.SetFailpoint(ctx, program, name, terms))
			}
			return errors.Join(errs...)
		})
	}
	return func(ctx context.Context) error { return set(ctx, FailpointOff) }, set(ctx, terms)
}
