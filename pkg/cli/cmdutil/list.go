/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"
)

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// accept asks for a table of the server if the command prints text, and for objects otherwise.
func (f *PrintFlags) accept(request *rest.Request) *rest.Request {
	if f.Text() {
		return request.SetHeader("Accept", asTable)
	}
	return request.SetHeader("Accept", runtime.ContentTypeJSON)
}

// PrintList prints the answer to a request for a list: text in the columns that the server defines, or none if the list is empty.
func (b *Base) PrintList(ctx context.Context, request *rest.Request, none string) error {
	result := b.PrintFlags.accept(request).Do(ctx)
	// The error of Raw lacks what the server answered.
	if err := result.Error(); err != nil {
		return err
	}
	answer, err := result.Raw()
	if err != nil {
		return err
	}
	list, err := runtime.Decode(unstructured.UnstructuredJSONScheme, answer)
	if err != nil {
		return fmt.Errorf("cannot decode the response of nsinit-apiserver: %w", err)
	}
	return b.PrintFlags.Print(b.Out, list, func(out io.Writer) error {
		var table metav1.Table
		if err := json.Unmarshal(answer, &table); err != nil {
			return err
		}
		if len(table.Rows) == 0 {
			_, err := fmt.Fprintln(b.ErrOut, none)
			return err
		}
		return printers.NewTablePrinter(printers.PrintOptions{Wide: *b.PrintFlags.OutputFormat == "wide"}).PrintObj(&table, out)
	})
}

// PrintWatch prints what a watch shows, in the same way with the type of each event, until it ends.
func (b *Base) PrintWatch(ctx context.Context, request *rest.Request) error {
	stream, err := b.PrintFlags.accept(request.Param("watch", "true")).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	out, options := printers.GetNewTabWriter(b.Out), printers.PrintOptions{Wide: *b.PrintFlags.OutputFormat == "wide"}
	var columns []metav1.TableColumnDefinition
	for events := json.NewDecoder(stream); ; {
		var event metav1.WatchEvent
		if err := events.Decode(&event); errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("the watch was interrupted: %w", err)
		}
		if event.Type == string(watch.Error) {
			var status metav1.Status
			if err := json.Unmarshal(event.Object.Raw, &status); err != nil {
				return err
			}
			return apierrors.FromObject(&status)
		}
		object, err := runtime.Decode(unstructured.UnstructuredJSONScheme, event.Object.Raw)
		if err != nil {
			return fmt.Errorf("cannot decode the response of nsinit-apiserver: %w", err)
		}
		if err := b.PrintFlags.Print(b.Out, object, func(io.Writer) error {
			var table metav1.Table
			if err := json.Unmarshal(event.Object.Raw, &table); err != nil {
				return err
			}
			if columns == nil { // only the first event has them
				columns = append([]metav1.TableColumnDefinition{{Name: "Event", Type: "string"}}, table.ColumnDefinitions...)
			}
			table.ColumnDefinitions = columns
			for i := range table.Rows {
				table.Rows[i].Cells = append([]any{event.Type}, table.Rows[i].Cells...)
			}
			printer := printers.NewTablePrinter(options)
			options.NoHeaders = true
			return errors.Join(printer.PrintObj(&table, out), out.Flush())
		}); err != nil {
			return err
		}
	}
}
