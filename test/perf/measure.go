/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// options describe what to measure.
type options struct {
	// dir is the folder with the samples, and planes that with the state of the control planes.
	dir, planes string
	only        *regexp.Regexp
	// rounds overrides the number of rounds of each scenario, if it is not 0.
	rounds int
}

// measure takes the samples that are missing.
func measure(ctx context.Context, o options) error {
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	stored, err := loadSamples(o.dir)
	if err != nil {
		return err
	}
	here, err := machine()
	if err != nil {
		return err
	}
	m := &measurement{options: o, samples: stored, machine: here, running: map[bool]*plane{}}
	for _, s := range scenarios() {
		if err == nil && o.only.MatchString(s.name) {
			err = m.scenario(ctx, s)
		}
	}
	return errors.Join(err, m.stop(ctx))
}

// measurement is one run of the command.
type measurement struct {
	options
	*samples
	// machine is the number of cores and the processor.
	machine string
	// running are the control planes without and with nsinit.
	running map[bool]*plane
}

// stop stops the control planes.
func (m *measurement) stop(ctx context.Context) error {
	var errs []error
	for _, nsinit := range slices.Collect(maps.Keys(m.running)) {
		errs = append(errs, m.running[nsinit].stop(ctx))
		delete(m.running, nsinit)
	}
	return errors.Join(errs...)
}

// scenario takes the missing samples of one scenario. The arms take turns: the first of a round is the last of the next.
func (m *measurement) scenario(ctx context.Context, s scenario) error {
	rounds := s.rounds
	if m.rounds > 0 {
		rounds = m.rounds
	}
	for round := range rounds {
		arms := slices.Clone(s.arms)
		if round%2 == 1 {
			slices.Reverse(arms)
		}
		arms = slices.DeleteFunc(arms, func(a arm) bool { return m.has(s.name, a.name, round) })
		if s.together != nil && len(arms) > 0 {
			if err := m.together(ctx, s, round, rounds); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			continue
		}
		for _, a := range arms {
			fmt.Printf("%s: round %d of %d, %s\n", s.name, round+1, rounds, a.name)
			if err := m.one(ctx, s, a, round); err != nil {
				return fmt.Errorf("%s, %s: %w", s.name, a.name, err)
			}
		}
	}
	for _, p := range m.running {
		p.stopHelpers()
	}
	return nil
}

// one takes one sample. Both control planes run all the time, so that the one that is not measured has the same effect on each.
func (m *measurement) one(ctx context.Context, s scenario, a arm, round int) error {
	if a.fresh {
		if err := m.stop(ctx); err != nil {
			return err
		}
	} else if err := m.start(ctx, !a.nsinit); err != nil {
		return err
	}
	if err := m.start(ctx, a.nsinit); err != nil {
		return err
	}
	began := time.Now()
	figures, err := a.measure(ctx, m.running[a.nsinit], prefix(began))
	if err != nil {
		return errors.Join(err, m.stop(ctx)) // what it left would disturb what follows
	}
	return m.store(s, a, round, began, figures)
}

// together takes one sample of each arm, on new control planes, which differ a little from the former ones.
func (m *measurement) together(ctx context.Context, s scenario, round, rounds int) error {
	fmt.Printf("%s: round %d of %d\n", s.name, round+1, rounds)
	if err := errors.Join(m.stop(ctx), m.start(ctx, false), m.start(ctx, true)); err != nil {
		return err
	}
	began := time.Now()
	figures, err := s.together(ctx, m.running, prefix(began))
	if err != nil {
		return err
	}
	for _, a := range s.arms {
		fmt.Println(" ", a.name)
		if err := m.store(s, a, round, began, figures[a.name]); err != nil {
			return err
		}
	}
	return nil
}

// start starts a control plane unless it runs.
func (m *measurement) start(ctx context.Context, nsinit bool) (err error) {
	if m.running[nsinit] != nil {
		return nil
	}
	p, err := startPlane(ctx, fmt.Sprintf("%s-%t", m.planes, nsinit), nsinit)
	if err == nil {
		m.running[nsinit] = p
	}
	return err
}

// prefix returns what the names of all objects of a sample begin with.
func prefix(began time.Time) string {
	return fmt.Sprintf("perf-%d", began.UnixNano()/int64(time.Millisecond))
}

// store prints and stores a sample.
func (m *measurement) store(s scenario, a arm, round int, began time.Time, figures map[string]float64) error {
	printFigures(figures)
	return m.add(sample{s.name, a.name, round, began, m.machine, figures})
}

func printFigures(figures map[string]float64) {
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		fmt.Printf("  %10.2f  %s\n", figures[name], name)
	}
}

// machine returns the number of cores and the processor of this machine.
func machine() (string, error) {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	model := ""
	for line := range strings.Lines(string(data)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%d cores (%s)", strings.Count(string(data), "processor\t:"), model), nil
}
