/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // registers the metrics of queues
	"k8s.io/controller-manager/app"
)

// shutdownTimeout bounds the requests that are running at shutdown.
const shutdownTimeout = 5 * time.Second

// serve serves /healthz, /livez, /readyz, /metrics and /debug/pprof until the context ends. It returns a channel that
// is closed when the server has stopped. The cluster authorizes access to metrics and profiles.
func (o *Options) serve(ctx context.Context, watchdog *leaderelection.HealthzAdaptor) (<-chan struct{}, error) {
	var serving *server.SecureServingInfo
	if err := o.SecureServing.ApplyTo(&serving); err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	if serving == nil { // --secure-port=0
		stopped := make(chan struct{})
		close(stopped)
		return stopped, nil
	}
	var authentication server.AuthenticationInfo
	if err := o.Authentication.ApplyTo(&authentication, serving, nil); err != nil {
		return nil, fmt.Errorf("cannot set up authentication: %w", err)
	}
	var authorization server.AuthorizationInfo
	if err := o.Authorization.ApplyTo(&authorization); err != nil {
		return nil, fmt.Errorf("cannot set up authorization: %w", err)
	}
	stopped, _, err := serving.Serve(app.BuildHandlerChain(handler(watchdog), &authorization, &authentication), shutdownTimeout, ctx.Done())
	return stopped, err
}

// handler returns the handler of every path. An instance that is not the leader is healthy and ready.
func handler(watchdog *leaderelection.HealthzAdaptor) http.Handler {
	paths := mux.NewPathRecorderMux(name)
	healthz.InstallHandler(paths, healthz.PingHealthz, watchdog)
	healthz.InstallLivezHandler(paths, healthz.PingHealthz, watchdog)
	healthz.InstallReadyzHandler(paths, healthz.PingHealthz, watchdog)
	paths.Handle("/metrics", legacyregistry.Handler())
	routes.Profiling{}.Install(paths)
	return paths
}

// lateFiles provides a certificate whose files do not exist yet, because this program issues it. Until
// then, it provides another certificate. The server reads it once a minute.
type lateFiles struct {
	dynamiccertificates.CertKeyContentProvider // while the files do not exist

	certFile, keyFile string

	mu        sync.Mutex
	cert, key []byte
}

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider. It ignores invalid files,
// such as a new certificate with the old key.
func (f *lateFiles) CurrentCertKeyContent() (cert, key []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	cert, certErr := os.ReadFile(f.certFile)
	key, keyErr := os.ReadFile(f.keyFile)
	if certErr == nil && keyErr == nil {
		if _, err := tls.X509KeyPair(cert, key); err == nil {
			f.cert, f.key = cert, key
		}
	}
	if f.cert == nil {
		return f.CertKeyContentProvider.CurrentCertKeyContent()
	}
	return f.cert, f.key
}

// defaultCertificate creates a self-signed certificate if none is configured, or if its files do not
// exist because no instance has issued it yet.
func defaultCertificate(secure *genericoptions.SecureServingOptions, issued bool) error {
	files := secure.ServerCert.CertKey
	_, err := os.Stat(files.CertFile)
	late := issued && files.CertFile != "" && os.IsNotExist(err)
	if late {
		secure.ServerCert.CertKey = genericoptions.CertKey{}
	}
	if err := secure.MaybeDefaultWithSelfSignedCerts(name, nil, nil); err != nil {
		return fmt.Errorf("cannot create a certificate: %w", err)
	}
	if late {
		secure.ServerCert.GeneratedCert = &lateFiles{CertKeyContentProvider: secure.ServerCert.GeneratedCert, certFile: files.CertFile, keyFile: files.KeyFile}
	}
	return nil
}
