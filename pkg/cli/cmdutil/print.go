/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// APIVersion is the apiVersion of what commands print and no server stores.
const APIVersion = "cli.nsinit.dev/v1alpha1"

// PrintFlags are the flag --output and those that belong to it, as in kubectl get.
type PrintFlags struct {
	*genericclioptions.PrintFlags
	// Wide says that the command prints more text with --output=wide.
	Wide bool
}

// NewPrintFlags returns the flags of a command that prints objects of a scheme. With no --output, the printer of the
// flags prints the name of an object and the operation.
func NewPrintFlags(operation string, scheme *runtime.Scheme) *PrintFlags {
	return &PrintFlags{PrintFlags: genericclioptions.NewPrintFlags(operation).WithTypeSetter(scheme)}
}

// NewReportFlags returns the flags of a command that prints a report, which has no name.
func NewReportFlags() *PrintFlags {
	flags := &PrintFlags{PrintFlags: genericclioptions.NewPrintFlags("")}
	flags.NamePrintFlags = nil
	return flags
}

// AddFlags adds the flags to a command, with the completion of --output.
func (f *PrintFlags) AddFlags(command *cobra.Command) {
	f.PrintFlags.AddFlags(command)
	command.Flag("output").Usage = fmt.Sprintf("Output format. One of: (%s).", strings.Join(f.AllowedFormats(), ", "))
	CompleteFlag(command, "output", f.AllowedFormats()...)
}

// AllowedFormats returns the values of --output.
func (f *PrintFlags) AllowedFormats() []string {
	formats := f.PrintFlags.AllowedFormats()
	if f.Wide {
		formats = append(formats, "wide")
	}
	return formats
}

// Text reports whether the command prints text for people.
func (f *PrintFlags) Text() bool {
	return *f.OutputFormat == "" && *f.TemplatePrinterFlags.TemplateArgument == "" || f.Wide && *f.OutputFormat == "wide"
}

// Lasting returns the stream for lines of progress that stay: in other formats than text, only objects go to the output.
func (f *PrintFlags) Lasting(streams genericiooptions.IOStreams) io.Writer {
	if f.Text() {
		return streams.Out
	}
	return streams.ErrOut
}

// Validate returns an error for a format that does not exist.
func (f *PrintFlags) Validate() error {
	if f.Text() {
		return nil
	}
	_, err := f.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return genericclioptions.NoCompatiblePrinterError{OutputFormat: f.OutputFormat, AllowedFormats: f.AllowedFormats()}
	}
	return err
}

// Print prints an object, or a pointer to a report with a kind, in the format that --output names. For text, it calls
// a function or, for nil, prints the name of the object and the operation.
func (f *PrintFlags) Print(out io.Writer, object any, text func(io.Writer) error) error {
	if f.Text() && text != nil {
		return text(out)
	}
	printer, err := f.ToPrinter()
	if err != nil {
		return err
	}
	printed, ok := object.(runtime.Object)
	if !ok {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		printed = &unstructured.Unstructured{Object: content}
	}
	return printer.PrintObj(printed, out)
}

// List is a report of several items.
type List[T any] struct {
	metav1.TypeMeta `json:",inline"`
	Items           []T `json:"items"`
}

// NewList returns a list of a kind.
func NewList[T any](kind string, items []T) *List[T] {
	return &List[T]{TypeMeta: metav1.TypeMeta{Kind: kind, APIVersion: APIVersion}, Items: items}
}
