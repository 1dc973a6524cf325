/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package preview

import (
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// text prints a line for each manifest, and then why manifests are refused.
func text(out io.Writer, namespace *corev1.Namespace, exists bool, results []Result) error {
	if len(results) == 0 {
		_, err := fmt.Fprintf(out, "No population puts anything into namespace %q.\n", namespace.Name)
		return err
	}
	if !exists {
		_, _ = fmt.Fprintf(out, "Namespace %q does not exist. If %s creates it, it gets:\n\n", namespace.Name, printable.Line(namespace.Annotations[v1alpha1.AnnotationCreatedBy]))
	}
	table := printers.GetNewTabWriter(out)
	_, _ = fmt.Fprintln(table, "POPULATION\tMANIFEST\tOBJECT\tRESULT")
	for _, r := range results {
		object, what := unstructured.Unstructured{Object: r.Object}, ""
		if r.Object != nil {
			what = printable.Line(object.GetKind() + "/" + object.GetName())
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Population, r.Manifest, what, r.Result)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.ReadyWhen != "" && !exists {
			_, _ = fmt.Fprintf(out, "\n%s/%s is ready, and the namespace can open, when: %s\n", r.Population, r.Manifest, printable.Line(r.ReadyWhen))
		}
		if r.Message != "" {
			_, _ = fmt.Fprintf(out, "\n%s/%s: %s\n", r.Population, r.Manifest, printable.Line(r.Message))
		}
	}
	return nil
}
