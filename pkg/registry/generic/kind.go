/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package generic

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Object is an object of the internal version.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind declares a cluster-scoped kind.
type Kind[T Object] struct {
	// Resource and Singular are its names.
	Resource, Singular string
	// ShortNames are further names that kubectl accepts.
	ShortNames []string
	// New and NewList return empty objects of the internal version.
	New, NewList func() runtime.Object
	// Parts are the parts of an object. A part that lies within another one precedes it.
	Parts []Part[T]
	// Endpoints are the endpoints by name. The name of the main endpoint is empty.
	Endpoints map[string]Endpoint[T]
	// MayCreate returns why no object may be created now, or nil. It may be nil.
	MayCreate func(ctx context.Context) error
	// Create sets the parts of a new object that its creator does not decide. It may be nil.
	Create func(ctx context.Context, created T)
	// Validate checks a write to any endpoint, in addition to the validation that is generated
	// from tags. For a new object, old is nil.
	Validate func(updated, old T) field.ErrorList
	// Fields returns the fields besides metadata.name that can be selected. It may be nil.
	Fields func(T) fields.Set
	// Terminate, if it is set, makes a deletion take two steps. The first step calls it to set the
	// status, within the guaranteed update, after the deletion timestamp was set. T must implement
	// nsinit.Terminable.
	Terminate func(T)
	// Table prints objects.
	Table rest.TableConvertor
}

// Part is a part of an object that one endpoint owns, or only the server.
type Part[T Object] struct {
	// Name identifies the part. It is the path of its field unless Fields is set.
	Name string
	// Fields are the paths of the fields of the part in the served version: names that are
	// separated by dots. The name * stands for every item of a list, and [key="value"] for one. A
	// field belongs to the part that names the longest path to it.
	Fields []string
	// Copy copies the part from one object to another.
	Copy func(to, from T)
	// Generation makes a change of the part increment metadata.generation.
	Generation bool
}

// Endpoint declares what a write to an endpoint may change.
type Endpoint[T Object] struct {
	// Owns names the parts that the client writes.
	Owns []string
	// Postable: a POST makes the same update as a PUT.
	Postable bool
	// Entries returns the names of the entries of status.initializers, and the names that they can have. Other names are refused:
	// managedFields would keep them. It may be nil.
	Entries func(T) (names, known []string)
	// Prepare normalizes these parts and derives what the server sets, after all other parts were
	// taken from the old object. It may be nil.
	Prepare func(ctx context.Context, updated, old T)
	// Validate checks the change, in addition to the Validate of the kind. It may be nil.
	Validate func(updated, old T) field.ErrorList
	// Authorize checks, in addition to RBAC, who makes a valid change through a subresource. It may
	// be nil.
	Authorize func(ctx context.Context, updated, old T) error
	// Audit returns the annotations of the audit log for a write to a subresource that succeeded.
	// It may be nil.
	Audit func(updated, old T) map[string]string
}

// Metadata returns the part metadata. The fields that carry preconditions, and managedFields, stay
// as they were sent.
func Metadata[T Object]() Part[T] {
	return Part[T]{Name: "metadata", Copy: func(to, from T) { metav1.ResetObjectMetaForStatus(to, from) }}
}

func (p *Part[T]) fields() []string {
	if len(p.Fields) > 0 {
		return p.Fields
	}
	return []string{p.Name}
}

// depth returns how many elements of a path are named by a field of a part: 0 if the path leads to
// a struct around the field, -1 if it leads elsewhere.
func depth(name string, path fieldpath.Path) int {
	elements := strings.Split(name, ".")
	for i, element := range elements {
		if i == len(path) {
			return 0
		}
		if element != "*" && element != strings.TrimPrefix(path[i].String(), ".") {
			return -1
		}
	}
	return len(elements)
}
