/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Table turns objects of type T, or lists of them, into the tables that kubectl prints.
type Table[T runtime.Object] struct {
	// Columns are the headings. Only kubectl get -o wide shows those with a priority above 0.
	Columns []metav1.TableColumnDefinition
	// Cells returns one value for each column. The age of the object is as kubectl prints it.
	Cells func(object T, age string) []any
}

var _ rest.TableConvertor = (*Table[runtime.Object])(nil)

// ConvertToTable implements rest.TableConvertor.
func (c *Table[T]) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	result := &metav1.Table{}
	if list, err := meta.ListAccessor(object); err == nil {
		result.ResourceVersion = list.GetResourceVersion()
		result.Continue = list.GetContinue()
		result.RemainingItemCount = list.GetRemainingItemCount()
	} else if single, err := meta.CommonAccessor(object); err == nil {
		result.ResourceVersion = single.GetResourceVersion()
	}
	if opt, ok := options.(*metav1.TableOptions); !ok || !opt.NoHeaders {
		result.ColumnDefinitions = c.Columns
	}
	var err error
	result.Rows, err = table.MetaToTableRow(object, func(item runtime.Object, _ metav1.Object, _, age string) ([]any, error) {
		return c.Cells(item.(T), age), nil
	})
	return result, err
}
