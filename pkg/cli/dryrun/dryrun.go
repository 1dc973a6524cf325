/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package dryrun is the flag --dry-run of commands that write.
package dryrun

import (
	"fmt"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	none   = "none"
	server = "server"
)

// Flag is the flag.
type Flag struct{ value string }

// NewFlag returns the flag with its default: the request is made in earnest.
func NewFlag() *Flag { return &Flag{value: none} }

// AddFlag adds it to a command.
func (f *Flag) AddFlag(flags *pflag.FlagSet) {
	flags.StringVar(&f.value, "dry-run", f.value, `"none", or "server" to have the request checked and nothing stored.`)
}

// Options returns what requests say of it: nothing, or that they are not made in earnest.
func (f *Flag) Options() ([]string, error) {
	switch f.value {
	case none:
		return nil, nil
	case server:
		return []string{metav1.DryRunAll}, nil
	}
	return nil, fmt.Errorf(`--dry-run=%s: give "none" or "server"`, f.value)
}
