/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/apiserver/scheme"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// object is an object with metadata.
type object interface {
	runtime.Object
	metav1.Object
}

// bodies returns an object in each format that clients may send.
func bodies(t *testing.T, object runtime.Object) map[string][]byte {
	t.Helper()
	codecs := serializer.NewCodecFactory(scheme.New())
	all := map[string][]byte{}
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeYAML || info.Serializer == nil {
			continue
		}
		data, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, v1alpha1.SchemeGroupVersion), object)
		if err != nil {
			t.Fatal(err)
		}
		all[info.MediaType] = data
	}
	return all
}

// send returns the status of the answer to a request.
func send(t *testing.T, client rest.Interface, verb, mediaType string, body []byte, path ...string) (int, string) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		status := 0
		data, err := client.Verb(verb).Suffix(path...).SetHeader("Content-Type", mediaType).
			Body(body).MaxRetries(0).Do(context.Background()).StatusCode(&status).Raw()
		if err != nil && status == 0 {
			t.Fatal(err)
		}
		// On a busy machine, etcd can be too slow.
		if status != http.StatusServiceUnavailable || attempt == 10 {
			return status, string(data)
		}
	}
}

// TestDamagedBodies: what a client damaged is the client's error, in whatever format it comes.
func TestDamagedBodies(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t)
	admin := server.Client(t, "admin").NsinitV1alpha1()
	configuration := server.MustConfigure(t, testserver.Configuration("damaged", "a.example.com"))
	server.MustLifecycle(t, "damaged")
	population, err := admin.NamespacePopulations().Create(t.Context(), &v1alpha1.NamespacePopulation{ObjectMeta: metav1.ObjectMeta{Name: "damaged"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	record, err := admin.NamespaceLifecycles().Get(t.Context(), "damaged", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		verb   string
		object object
		path   []string
	}{
		{http.MethodPut, configuration, []string{"namespaceinitializerconfigurations", "damaged"}},
		{http.MethodPut, configuration, []string{"namespaceinitializerconfigurations", "damaged", "status"}},
		{http.MethodPut, record, []string{"namespacelifecycles", "damaged"}},
		{http.MethodPut, record, []string{"namespacelifecycles", "damaged", "status"}},
		{http.MethodPut, record, []string{"namespacelifecycles", "damaged", "initialize"}},
		{http.MethodPost, record, []string{"namespacelifecycles", "damaged", "finalize"}},
		{http.MethodPost, record, []string{"namespacelifecycles"}},
		{http.MethodPost, population, []string{"namespacepopulations"}},
		{http.MethodPut, population, []string{"namespacepopulations", "damaged"}},
		{http.MethodPut, population, []string{"namespacepopulations", "damaged", "status"}},
	} {
		object := test.object.DeepCopyObject().(object)
		object.SetManagedFields(nil)
		object.SetResourceVersion("12345x")
		for mediaType, body := range bodies(t, object) {
			status, answer := send(t, admin.RESTClient(), test.verb, mediaType, body, test.path...)
			if status != http.StatusBadRequest {
				t.Errorf("%s %v in %s with a damaged resourceVersion: %d %s", test.verb, test.path, mediaType, status, answer)
			}
		}
		object.SetResourceVersion("1")
		damage(t, bodies(t, object)[runtime.ContentTypeProtobuf], func(what string, damaged []byte) {
			if status, answer := send(t, admin.RESTClient(), test.verb, runtime.ContentTypeProtobuf, damaged, test.path...); status >= http.StatusInternalServerError {
				t.Fatalf("%s %v %s: %d %s\n%q", test.verb, test.path, what, status, answer, damaged)
			}
		})
	}
}

// damage passes a body on, damaged at each of many positions and cut off there.
func damage(t *testing.T, body []byte, try func(what string, damaged []byte)) {
	t.Helper()
	const positions = 60
	for n := range positions {
		i := n * len(body) / positions
		damaged := bytes.Clone(body)
		damaged[i] = []byte{0x00, 0x7f, 0x80, 0xff}[n%4]
		try(fmt.Sprintf("with byte %d of %d as %#x", i, len(body), damaged[i]), damaged)
		try(fmt.Sprintf("cut after %d of %d bytes", i, len(body)), body[:i])
	}
}
