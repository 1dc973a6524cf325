/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apierrors

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestIsAbsent(t *testing.T) {
	records := schema.GroupResource{Group: "nsinit.dev", Resource: "namespacelifecycles"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"no error":                  {nil, false},
		"the object is gone":        {apierrors.NewNotFound(records, "x"), true},
		"wrapped":                   {fmt.Errorf("reading: %w", apierrors.NewNotFound(records, "x")), true},
		"the API is not registered": {apierrors.NewGenericServerResponse(http.StatusNotFound, "get", records, "x", "404 page not found", 0, true), false},
		"another error":             {apierrors.NewConflict(records, "x", errors.New("y")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := IsAbsent(test.err); got != test.want {
				t.Errorf("Is(%v) = %v", test.err, got)
			}
			if ignored := IgnoreAbsent(test.err) == nil; ignored != (test.want || test.err == nil) {
				t.Errorf("Ignore(%v): ignored is %v", test.err, ignored)
			}
		})
	}
}
