/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed report.md
var document string

func reportCommand(flags *flag.FlagSet, dir *string) func() error {
	output := flags.String("output", filepath.Join("docs", "performance.md"), "the file to write")
	return func() error {
		return report(*dir, *output)
	}
}

// report writes the document and its pictures from the samples of a folder.
func report(dir, output string) error {
	stored, err := loadSamples(dir)
	if err != nil {
		return err
	}
	r := &reporter{samples: stored}
	parsed, err := template.New("report").Funcs(template.FuncMap{
		"list": func(all ...string) []string { return all }, "number": number, "percent": percent, "machine": r.machine, "day": r.day,
		"figure": r.figure, "ratio": r.ratio, "noise": r.noise, "commits": r.commits, "latency": r.latency, "updates": r.updates,
		"perSecond": r.perSecond, "others": others, "writes": r.writes, "kinds": func() map[string]string {
			return map[string]string{"write": "a Secret, without and with nsinit", "write of ConfigMaps": "a ConfigMap, without and with nsinit",
				"write of pods": "a pod, created and deleted, without and with the component objects"}
		}, "ratios": ratios,
	}).Parse(document)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, nil); err != nil {
		return fmt.Errorf("%w: run the measurements first", err)
	}
	if err := os.WriteFile(output, text.Bytes(), 0o644); err != nil { //nolint:gosec // documentation
		return err
	}
	return drawPictures(output)
}

// reporter computes what the document shows.
type reporter struct{ *samples }

// errMissing is the error for a figure that was not measured.
var errMissing = errors.New("it was not measured")

// median returns the median of a figure.
func (r *reporter) median(scenario, arm, figure string) (float64, error) {
	values := r.values(scenario, arm, figure)
	if len(values) == 0 {
		return 0, fmt.Errorf("%s, %s, %s: %w", scenario, arm, figure, errMissing)
	}
	return median(values), nil
}

// ratio returns the ratio of the medians of two arms.
func (r *reporter) ratio(scenario, arm, other, figure string) (float64, error) {
	value, err := r.median(scenario, arm, figure)
	if err != nil {
		return 0, err
	}
	base, err := r.median(scenario, other, figure)
	return value / base, err
}

// figure returns the median of a figure, and the lowest and the highest value.
func (r *reporter) figure(scenario, arm, figure string) (string, error) {
	middle, err := r.median(scenario, arm, figure)
	if err != nil {
		return "", err
	}
	values := r.values(scenario, arm, figure)
	lowest, highest := number(values[0]), number(values[len(values)-1])
	if lowest == highest {
		return lowest, nil
	}
	return fmt.Sprintf("%s (%s–%s)", number(middle), lowest, highest), nil
}

// noise returns how much the medians of an arm and of its repetition differ, relative to the former.
func (r *reporter) noise(scenario, arm, figure string) (float64, error) {
	value, err := r.ratio(scenario, arm+again, arm, figure)
	return math.Abs(value - 1), err
}

// writes returns the ratios of the CPU time of the arms of a scenario of writes, each with its repetition, in one round, sorted: those with
// nsinit to those without, or the repetitions to the others.
func (r *reporter) writes(scenario string, repetitions bool) ([]float64, error) {
	const figure = "CPU of kube-apiserver, ms"
	above, below := map[int]float64{}, map[int]float64{}
	for _, one := range r.all {
		if one.Scenario != scenario {
			continue
		}
		counted := strings.HasPrefix(one.Arm, nsinitArm)
		if repetitions {
			counted = strings.HasSuffix(one.Arm, again)
		}
		if counted {
			above[one.Round] += one.Figures[figure]
		} else {
			below[one.Round] += one.Figures[figure]
		}
	}
	var ratios []float64
	for round := range above {
		ratios = append(ratios, above[round]/below[round])
	}
	if len(ratios) == 0 {
		return nil, fmt.Errorf("%s: %w", scenario, errMissing)
	}
	slices.Sort(ratios)
	return ratios, nil
}

// ratios writes the median, the lowest and the highest.
func ratios(sorted []float64) string {
	return fmt.Sprintf("%.3f (%.3f–%.3f)", median(sorted), sorted[0], sorted[len(sorted)-1])
}

// day returns the day of the last sample.
func (r *reporter) day() (string, error) {
	if len(r.all) == 0 {
		return "", errMissing
	}
	return r.all[len(r.all)-1].Time.UTC().Format("2 January 2006"), nil
}

// machine returns the machine of the last sample.
func (r *reporter) machine() (string, error) {
	if len(r.all) == 0 {
		return "", errMissing
	}
	return r.all[len(r.all)-1].Machine, nil
}

// commits returns the ratio of the commits for a namespace, without the two of kube-controller-manager, to the minimum for a
// number of initializers and of the writes that they make in namespaces: those that create the namespace and its NamespaceLifecycle, one for each
// initializer, and the one that opens the gate.
func (r *reporter) commits(scenario, arm string, initializers, writes int) (float64, error) {
	value, err := r.median(scenario, arm, "commits")
	return (value - 2) / minimum(initializers, writes), err
}

func minimum(initializers, writes int) float64 { return float64(initializers + 3 + writes) }

// updates returns the median time until a namespace is open, in updates of an object.
func (r *reporter) updates(arm string) (float64, error) {
	value, err := r.median("latency", arm, "p50, ms")
	if err != nil {
		return 0, err
	}
	put, err := r.median("latency", arm, "p50 of an update, ms")
	return value / put, err
}

// latency returns the ratio of the median time until a namespace is open to that of the minimum of commits, if each took as
// long as an update. The arm is the number of initializers.
func (r *reporter) latency(arm string) (float64, error) {
	initializers, err := strconv.Atoi(arm)
	if err != nil {
		return 0, err
	}
	value, err := r.updates(arm)
	return value / minimum(initializers, 0), err
}

// perSecond returns how many cores the storm's programs need while a number of namespaces is created per second.
func (r *reporter) perSecond(namespaces float64) (float64, error) {
	each, err := r.median("storm", nsinitArm, "CPU, ms")
	return each * namespaces / 1000, err
}

// others are the arms with which policy-population is compared, after its own.
func others() []string {
	names := []string{nsinitArm, requiredArm}
	for _, a := range alternatives() {
		names = append(names, a.name)
	}
	return names
}

func percent(value float64) string { return fmt.Sprintf("%.1f %%", 100*value) }

// number prints two significant digits at least.
func number(value float64) string {
	if math.Abs(value) < 10 {
		return fmt.Sprintf("%.2g", value)
	}
	return fmt.Sprintf("%.0f", value)
}
