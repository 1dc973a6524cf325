/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
)

// BenchmarkInitialization creates a NamespaceLifecycle with two initializers, removes both and deletes
// it, over HTTP and with etcd on disk.
func BenchmarkInitialization(b *testing.B) {
	ctx := context.Background()
	server := testserver.Start(b)
	server.MustConfigure(b, testserver.Configuration("two", "a.example.com", "b.example.com"))
	client := server.Client(b, "admin").NsinitV1alpha1().NamespaceLifecycles()
	b.ReportAllocs()
	for b.Loop() {
		record := server.MustLifecycle(b, uniqueName())
		for range 2 {
			record.Spec.Initializers.Pending = record.Spec.Initializers.Pending[1:]
			var err error
			if record, err = client.Initialize(ctx, record.Name, record, metav1.UpdateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		if err := client.Delete(ctx, record.Name, metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
