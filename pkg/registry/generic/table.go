/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

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

// Table turns objects of type T, or lists of them, into the tables that kubectl prints.
type Table[T runtime.Object] struct {
	// Columns are the headings. Only kubectl get -o wide shows those with a priority above 0.
	Columns []metav1.TableColumnDefinition
	// Cells returns one value for each column.
	Cells func(object T, now time.Time) []any
	// Clock is the clock by which ages are computed.
	Clock clock.PassiveClock
}

var _ rest.TableConvertor = (*Table[runtime.Object])(nil)

// ConvertToTable implements rest.TableConvertor.
func (c *Table[T]) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
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

// Since returns the time between at and now as kubectl prints ages.
func Since(at, now time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(at))
}
