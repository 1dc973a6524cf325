/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package fault

import (
	"context"
	"errors"
	"time"
)

// Programs of the smallest topology.
const (
	kubeEtcd   = "etcd"
	apiserver  = "kube-apiserver"
	kubeCM     = "kube-controller-manager"
	nsinitAPI  = "nsinit-apiserver"
	nsinitCM   = "nsinit-controller-manager"
	leaseBound = 7 * time.Second // longer than the lease of the controllers
)

// processFaults kill, pause and restart programs.
func processFaults() []Fault {
	var all []Fault
	for _, program := range []string{kubeEtcd, apiserver, kubeCM, nsinitAPI, nsinitCM} {
		all = append(all,
			Fault{Name: "kill -9 " + program, Programs: []string{program}, Hold: 500 * time.Millisecond, Rest: 2 * time.Second,
				Inject: down(program)},
			Fault{Name: "SIGSTOP " + program, Programs: []string{program}, Hold: 2 * time.Second, Rest: time.Second,
				Inject: pause(program)},
		)
	}
	return append(all,
		Fault{Name: "restart kube-apiserver", Programs: []string{apiserver}, Rest: 2 * time.Second, Inject: restart(apiserver)},
		Fault{Name: "nsinit-apiserver and nsinit-controller-manager down", Programs: []string{nsinitAPI, nsinitCM}, Hold: 3 * time.Second, Rest: 2 * time.Second,
			Inject: down(nsinitAPI, nsinitCM)},
		Fault{Name: "controller paused past its lease", Programs: []string{nsinitCM}, Hold: leaseBound, Rest: time.Second,
			Inject: pause(nsinitCM)},
	)
}

type healer = func(context.Context) error

// down kills programs, and starts them to heal.
func down(programs ...string) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		var errs []error
		for _, program := range programs {
			errs = append(errs, e.Kill(ctx, program))
		}
		return func(ctx context.Context) error {
			var errs []error
			for _, program := range programs {
				errs = append(errs, e.Run(ctx, program))
			}
			return errors.Join(errs...)
		}, errors.Join(errs...)
	}
}

func pause(program string) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		return func(ctx context.Context) error { return e.Resume(ctx, program) }, e.Pause(ctx, program)
	}
}

func restart(program string) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		return func(ctx context.Context) error { return e.Run(ctx, program) }, e.Stop(ctx, program)
	}
}

// linkFaults delay, drop and cut connections.
func linkFaults() []Fault {
	var all []Fault
	for _, link := range []string{"kube-apiserver-etcd", "aggregator-nsinit", "controller-kube-apiserver", "initializer-kube-apiserver"} {
		for how, f := range map[string]func(Link){
			"delay": func(l Link) { l.Delay(time.Second) },
			"drop":  Link.Drop,
			"cut":   Link.Cut,
		} {
			all = append(all, Fault{Name: how + " " + link, Links: []string{link}, Hold: 2 * time.Second, Rest: time.Second,
				Inject: func(_ context.Context, e *Env) (healer, error) {
					l := e.Link(link)
					f(l)
					return func(context.Context) error { l.Heal(); return nil }, nil
				}})
		}
	}
	return all
}
