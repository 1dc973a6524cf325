/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestFactory: the clients reach the cluster that the flags name, print its warnings once, unless told not to, and have its time.
func TestFactory(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.Header().Set("Warning", `299 - "it is old"`)
		w.Header().Set("Content-Type", "application/json")
		kind := map[string]string{"/api/v1/namespaces/shop": `{"kind":"Namespace","apiVersion":"v1"}`,
			"/apis/nsinit.dev/v1alpha1/namespacelifecycles/shop": `{"kind":"NamespaceLifecycle","apiVersion":"nsinit.dev/v1alpha1"}`}[request.URL.Path]
		_, _ = w.Write([]byte(kind))
	}))
	defer server.Close()
	for name, test := range map[string]struct {
		options []func(*rest.Config)
		want    string
	}{
		"warnings": {nil, "Warning: it is old\n"},
		"none":     {[]func(*rest.Config){WithoutWarnings}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var warnings bytes.Buffer
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			f := NewFactory(flags, &warnings)
			if err := flags.Parse([]string{"--server=" + server.URL}); err != nil {
				t.Fatal(err)
			}
			clients, err := f(test.options...)
			if err != nil {
				t.Fatal(err)
			}
			if ahead := time.Until(clients.ServerClock.Now()); ahead.Abs() > time.Minute {
				t.Errorf("before the first response, the server is %s ahead", ahead)
			}
			if _, err := clients.Core.CoreV1().Namespaces().Get(context.Background(), "shop", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
			if err := clients.REST.Get().Resource("namespacelifecycles").Name("shop").Do(context.Background()).Error(); err != nil {
				t.Error(err)
			}
			if ahead := time.Until(clients.ServerClock.Now()); (ahead - time.Hour).Abs() > time.Minute {
				t.Errorf("the server is %s ahead", ahead)
			}
			if warnings.String() != test.want {
				t.Errorf("warnings are %q", warnings.String())
			}
		})
	}
}
