/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package cmdtesting runs commands against fake clients.
package cmdtesting

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery/cached/memory"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	corefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	restfake "k8s.io/client-go/rest/fake"
	"k8s.io/client-go/restmapper"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned/scheme"
)

// Now returns the time of kube-apiserver at which commands start.
func Now() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// wrong is by how much the clock of kube-apiserver is behind that of this machine.
const wrong = 10 * time.Minute

// Clock is a clock that a wait moves on. It is wrong.
type Clock struct{ *testingclock.FakeClock }

// After implements clock.Clock.
func (c Clock) After(d time.Duration) <-chan time.Time {
	after := c.FakeClock.After(d)
	c.Step(d)
	return after
}

// Cluster is a cluster of fakes.
type Cluster struct {
	Core     *corefake.Clientset
	Nsinit   *nsinitfake.Clientset
	APIs     *aggregatorfake.Clientset
	Dynamic  *dynamicfake.FakeDynamicClient
	Metadata *metadatafake.FakeMetadataClient
	REST     *restfake.RESTClient
	// Clients are what commands get.
	Clients cmdutil.Clients
	// In is the standard input, and Context the context of commands, of the test if it is nil.
	In      string
	Context context.Context
}

// New returns a cluster that holds some objects of Kubernetes and of nsinit.
func New(objects ...runtime.Object) *Cluster {
	var core, nsinit []runtime.Object
	for _, object := range objects {
		if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil && kinds[0].GroupVersion() == v1alpha1.SchemeGroupVersion {
			nsinit = append(nsinit, object)
		} else {
			core = append(core, object)
		}
	}
	c := &Cluster{
		Core: corefake.NewClientset(core...), Nsinit: nsinitfake.NewClientset(nsinit...), APIs: aggregatorfake.NewClientset(),
		Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()),
		REST: &restfake.RESTClient{GroupVersion: v1alpha1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}
	// A RESTMapper on a discovery without a group asks again indefinitely.
	c.Core.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Version: "v1"}}}}
	clock := Clock{testingclock.NewFakeClock(Now().Add(wrong))}
	c.Clients = cmdutil.Clients{Clients: diagnosis.NewClients(c.Core, c.Nsinit, c.APIs, c.Metadata), Dynamic: c.Dynamic, REST: c.REST,
		Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Core.Discovery())), Clock: clock, ServerClock: cmdutil.NewServerClock(clock, -wrong)}
	return c
}

// Respond makes REST answer every request, with a Status for another code than 200.
func (c *Cluster) Respond(code int, body string) {
	c.REST.Client = restfake.CreateHTTPClient(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	})
}

// Command is the constructor of a command.
type Command func(cmdutil.Factory, genericiooptions.IOStreams) *cobra.Command

func (c *Cluster) factory(...func(*rest.Config)) (*cmdutil.Clients, error) { return &c.Clients, nil }

// Run runs a command, and returns what it wrote to its streams and its error.
func (c *Cluster) Run(t *testing.T, newCommand Command, args ...string) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := newCommand(c.factory, genericiooptions.IOStreams{In: strings.NewReader(c.In), Out: &stdout, ErrOut: &stderr})
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(args)
	err = command.ExecuteContext(cmp.Or(c.Context, t.Context()))
	return stdout.String(), stderr.String(), err
}

// Complete returns what a command offers for the argument after some arguments and flags.
func (c *Cluster) Complete(t *testing.T, newCommand Command, args ...string) []string {
	t.Helper()
	command := newCommand(c.factory, genericiooptions.NewTestIOStreamsDiscard())
	command.SetContext(t.Context())
	if err := command.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	names, _ := command.ValidArgsFunction(command, command.Flags().Args(), "")
	return names
}

// Test is a run of a command and what is expected of it.
type Test struct {
	Cluster *Cluster
	Args    []string
	// Out and ErrOut are written to the streams.
	Out, ErrOut string
	// Err is part of the error.
	Err string
}

// Check runs a command and compares.
func (test Test) Check(t *testing.T, newCommand Command) {
	t.Helper()
	cluster := test.Cluster
	if cluster == nil {
		cluster = New()
	}
	out, errOut, err := cluster.Run(t, newCommand, test.Args...)
	if (err == nil) != (test.Err == "") || err != nil && !strings.Contains(err.Error(), test.Err) {
		t.Errorf("the error is %v, want %q", err, test.Err)
	}
	if out != test.Out {
		t.Errorf("the output is\n%s\nwant\n%s", out, test.Out)
	}
	if errOut != test.ErrOut {
		t.Errorf("the error output is\n%s\nwant\n%s", errOut, test.ErrOut)
	}
}

// Ago returns a time before Now.
func Ago(d time.Duration) metav1.Time { return metav1.NewTime(Now().Add(-d)) }
