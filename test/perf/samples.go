/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// sample is what one arm of a scenario has measured in one round.
type sample struct {
	Scenario string    `json:"scenario"`
	Arm      string    `json:"arm"`
	Round    int       `json:"round"`
	Time     time.Time `json:"time"`
	// Machine is the number of cores and the processor.
	Machine string `json:"machine"`
	// Figures are the measured values. The names end with the unit, unless they are counts.
	Figures map[string]float64 `json:"figures"`
}

// samples are stored as JSON lines.
type samples struct {
	file string
	all  []sample
}

func loadSamples(dir string) (*samples, error) {
	s := &samples{file: filepath.Join(dir, "samples.jsonl")}
	data, err := os.ReadFile(s.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var one sample
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: %w: remove the line, or the file to start again", s.file, err)
		}
		s.all = append(s.all, one)
	}
	return s, lines.Err()
}

// has reports whether a sample was taken.
func (s *samples) has(scenario, arm string, round int) bool {
	return slices.ContainsFunc(s.all, func(o sample) bool { return o.Scenario == scenario && o.Arm == arm && o.Round == round })
}

func (s *samples) add(one sample) error {
	line, err := json.Marshal(one)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(s.file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	s.all = append(s.all, one)
	return errors.Join(err, file.Close())
}

// values returns the values of a figure of an arm, sorted.
func (s *samples) values(scenario, arm, figure string) []float64 {
	var values []float64
	for _, one := range s.all {
		if value, ok := one.Figures[figure]; ok && one.Scenario == scenario && one.Arm == arm {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	return values
}

// median returns the median of sorted values.
func median(sorted []float64) float64 {
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
