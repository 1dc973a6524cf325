/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package table turns objects of a kind, or lists of them, into the tables that kubectl
// prints.
package table

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"
)

// Convertor prints objects of type T.
type Convertor[T runtime.Object] struct {
	// Columns are the headings, of which those with a priority above 0 are shown by
	// kubectl get -o wide alone.
	Columns []metav1.TableColumnDefinition
	// Cells returns one value for each column.
	Cells func(object T, now time.Time) []any
	// Clock tells the time to which ages are counted.
	Clock clock.PassiveClock
}

var _ rest.TableConvertor = (*Convertor[runtime.Object])(nil)

// ConvertToTable implements rest.TableConvertor.
func (c *Convertor[T]) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if list, err := meta.ListAccessor(object); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if single, err := meta.CommonAccessor(object); err == nil {
		table.ResourceVersion = single.GetResourceVersion()
	}
	if opt, ok := options.(*metav1.TableOptions); !ok || !opt.NoHeaders {
		table.ColumnDefinitions = c.Columns
	}
	now := c.Clock.Now()
	addRow := func(item runtime.Object) error {
		typed, ok := item.(T)
		if !ok {
			return fmt.Errorf("cannot print a %T in this table", item)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: c.Cells(typed, now), Object: runtime.RawExtension{Object: item}})
		return nil
	}
	if meta.IsListType(object) {
		return table, meta.EachListItem(object, addRow)
	}
	return table, addRow(object)
}

// Since prints how long ago something was, as kubectl prints ages.
func Since(at, now time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(at))
}
