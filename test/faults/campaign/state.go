/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package campaign

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nsinit/nsinit/test/faults/check"
)

// Result is the result of one fault.
type Result struct {
	Fault      string `json:"fault"`
	Rounds     int    `json:"rounds"`
	Injections int    `json:"injections"`
	// Operations is the number of requests of clients, Namespaces the number of namespaces that they created.
	Operations int `json:"operations"`
	Namespaces int `json:"namespaces"`
	// Recovery is the longest time from the last fault of a round until every namespace had converged.
	Recovery   time.Duration     `json:"recovery"`
	Violations []check.Violation `json:"violations,omitempty"`
	// Histories are the files with the histories of the violations.
	Histories []string `json:"histories,omitempty"`
	// Errors are the rounds that could not be judged, and do not count.
	Errors []string `json:"errors,omitempty"`
	// Duration is how long the rounds took.
	Duration time.Duration `json:"duration"`
}

// State is the state of a campaign.
type State struct {
	// Commit is the commit of the source of the tested programs.
	Commit string `json:"commit"`
	// Earlier is that of the earlier version, or empty if there is none.
	Earlier string    `json:"earlier,omitempty"`
	Began   time.Time `json:"began"`
	// Rounds counts every round, and seeds the next one.
	Rounds  int                `json:"rounds"`
	Results map[string]*Result `json:"results"`
}

const stateFile = "state.json"

// Load reads the state in a directory, or returns a new one.
func Load(dir string) (*State, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return &State{Began: time.Now(), Results: map[string]*Result{}}, nil
	}
	if err != nil {
		return nil, err
	}
	s := &State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s is damaged, remove it to start again: %w", filepath.Join(dir, stateFile), err)
	}
	return s, nil
}

// Save writes the state atomically.
func (s *State) Save(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, stateFile)
	if err := os.WriteFile(path+".tmp", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// Of returns the result of a fault.
func (s *State) Of(fault string) *Result {
	r, ok := s.Results[fault]
	if !ok {
		r = &Result{Fault: fault}
		s.Results[fault] = r
	}
	return r
}
