/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package output is the flag --output of commands that print what they found.
package output

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"
)

// Format is "json", "yaml", or "" for text.
type Format string

// AddFlag adds the flag --output, -o, with its completion.
func (f *Format) AddFlag(command *cobra.Command) {
	command.Flags().StringVarP((*string)(f), "output", "o", string(*f), "Output format: json, yaml, or nothing for text.")
	Complete(command, "output", "json", "yaml")
}

// Complete offers the values that a flag of a command can have.
func Complete(command *cobra.Command, flag string, values ...string) {
	// It is an error to complete a flag that there is not, or twice: neither depends on input.
	utilruntime.Must(command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// Validate says which formats there are, if this is none of them.
func (f *Format) Validate() error {
	switch *f {
	case "", "json", "yaml":
		return nil
	}
	return fmt.Errorf("--output=%s: give json, yaml, or nothing for text", *f)
}

// Print writes what was found in a format that was validated, as text with the function that is given.
func (f *Format) Print(out io.Writer, found any, text func(io.Writer) error) error {
	if err := f.print(out, found, text); err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	return nil
}

func (f *Format) print(out io.Writer, found any, text func(io.Writer) error) error {
	switch *f {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "    ")
		// Commands are full of characters that are special in HTML.
		encoder.SetEscapeHTML(false)
		return encoder.Encode(found)
	case "yaml":
		data, err := yaml.Marshal(found)
		if err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	}
	return text(out)
}
