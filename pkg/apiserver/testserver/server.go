/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package testserver runs a whole nsinit-apiserver in a test: storage in an embedded etcd, admission,
// authorization, HTTP over TLS. Only the core API is a fake, which the test controls.
package testserver

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"

	"github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/embeddedetcd"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// Patience is how long a test waits for what usually takes seconds, on a busy machine, too.
const Patience = 3 * time.Minute

// Server is a running server.
type Server struct {
	// Core is the core API that the server talks to.
	Core *CoreAPI
	// EtcdEndpoint is where the server's etcd listens.
	EtcdEndpoint string

	host    string
	ca      []byte
	stop    context.CancelFunc
	stopped chan error
}

// Start starts a server and stops it when the test ends. The user "admin" has every permission.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartIn(t, Dir(t))
}

// Dir returns a directory whose path is short enough for unix sockets.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nsinit")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// StartIn starts a server on a directory, which can have the data of an earlier server, and waits
// until it is ready.
func StartIn(t testing.TB, dir string) *Server {
	t.Helper()
	s := StartWith(t, dir, NewCoreAPI(t), func(*options.Options) {})
	s.WaitReady(t)
	return s
}

// StartWith starts a server on a directory and a core API, which can have the data of an earlier
// server, and lets the test change its options. It does not wait. With -short, it skips the test.
func StartWith(t testing.TB, dir string, core *CoreAPI, change func(*options.Options)) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a server")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	o := options.New()
	o.EmbeddedEtcdDir = dir + "/etcd"
	registry := metrics.NewKubeRegistry() // several servers cannot share the one of the process
	o.Register, o.RegisterCollector = registry.Register, registry.Registerer().Register
	o.Recommended.CoreAPI.CoreAPIKubeconfigPath = core.kubeconfig(t, dir)
	o.Recommended.Authentication.SkipInClusterLookup = true
	o.Recommended.Authentication.CacheTTL = 0
	o.Recommended.Authorization.AllowCacheTTL = 0
	o.Recommended.Authorization.DenyCacheTTL = 0
	o.Recommended.Features.EnablePriorityAndFairness = false
	o.Recommended.SecureServing.Listener = listener
	o.Recommended.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	o.Recommended.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	ca := useCertificate(t, dir, &o.Recommended.SecureServing.ServerCert.CertKey)
	change(o)
	ctx, stop := context.WithCancel(context.Background())
	stopEtcd := func() {}
	if o.EmbeddedEtcdDir != "" {
		stopEtcd = startEtcd(ctx, t, o)
	}
	if err := o.Registry.Set(); err != nil {
		t.Fatal(err)
	}
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}

	s := &Server{
		Core:         core,
		EtcdEndpoint: o.Recommended.Etcd.StorageConfig.Transport.ServerList[0],
		host:         "https://" + listener.Addr().String(),
		ca:           ca,
		stop:         stop,
		stopped:      make(chan error, 1),
	}
	go func() {
		err := o.RunServer(ctx)
		stopEtcd()
		s.stopped <- err
	}()
	t.Cleanup(func() { s.Stop(t) })
	return s
}

// selfSigned is the certificate of every server, with its key: to make one takes as long as to start a server.
var selfSigned = sync.OnceValues(func() (pair [2][]byte, err error) { //nolint:gochecknoglobals // of the process
	pair[0], pair[1], err = cert.GenerateSelfSignedCertKey(installation.APIServer, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	return pair, err
})

// useCertificate writes the certificate and its key into a directory. It returns the CA.
func useCertificate(t testing.TB, dir string, files *genericoptions.CertKey) []byte {
	t.Helper()
	pair, err := selfSigned()
	files.CertFile, files.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(err, os.WriteFile(files.CertFile, pair[0], 0o600), os.WriteFile(files.KeyFile, pair[1], 0o600)); err != nil {
		t.Fatal(err)
	}
	return pair[0]
}

// startEtcd starts the etcd of a server in this process, and returns what stops it.
func startEtcd(ctx context.Context, t testing.TB, o *options.Options) func() {
	t.Helper()
	etcd, err := embeddedetcd.Start(ctx, o.EmbeddedEtcdDir, 0)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := embeddedetcd.Endpoint(o.EmbeddedEtcdDir)
	if err != nil {
		t.Fatal(err)
	}
	o.EmbeddedEtcdDir, o.Recommended.Etcd.StorageConfig.Transport.ServerList = "", []string{endpoint}
	return etcd.Stop
}

// Stop stops the server gracefully, as SIGTERM does, and waits for it.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.stop()
	select {
	case err, open := <-s.stopped:
		if open && err != nil {
			t.Errorf("the server stopped with an error: %v", err)
		}
		if open {
			close(s.stopped)
		}
	case <-time.After(time.Minute):
		t.Error("the server did not stop within a minute")
	}
}

// WaitExit waits until the server stops by itself, and returns why.
func (s *Server) WaitExit(t testing.TB) error {
	t.Helper()
	select {
	case err := <-s.stopped:
		close(s.stopped)
		return err
	case <-time.After(time.Minute):
		t.Fatal("the server did not stop by itself within a minute")
		return nil
	}
}

// Config returns a client configuration for a user.
func (s *Server) Config(user string) *rest.Config {
	return &rest.Config{
		Host:            s.host,
		BearerToken:     user,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.ca, ServerName: "nsinit-apiserver"},
		QPS:             -1,
	}
}

// Client returns the clients of a user.
func (s *Server) Client(t testing.TB, user string) versioned.Interface {
	t.Helper()
	return s.ClientFor(t, s.Config(user))
}

// ClientFor returns the clients with the given configuration.
func (*Server) ClientFor(t testing.TB, config *rest.Config) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// WaitReady waits until the server is ready.
func (s *Server) WaitReady(t testing.TB) {
	t.Helper()
	client := s.Client(t, "admin").Discovery().RESTClient()
	var last string
	err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, Patience, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-s.stopped:
			return false, err
		default:
		}
		checks, err := client.Get().AbsPath("/readyz").Param("verbose", "true").DoRaw(ctx)
		last = string(checks)
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("the server did not become ready: %v\n%s", err, last)
	}
}
