/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controllermanager

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/nsinit/nsinit/pkg/controller/namereuse"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/program"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/util/leader"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// NewCommand returns the command nsinit-controller-manager. It runs until its context ends.
func NewCommand() *cobra.Command {
	o := NewOptions()
	command := program.NewCommand(name, "Run the controllers of nsinit", o.Logs, o.Run, o.Complete, o.Validate)
	command.Long = "nsinit-controller-manager creates the NamespaceLifecycle of each namespace, opens the gate when every initializer is done, " +
		"and deletes the NamespaceLifecycle with the namespace."
	o.AddFlags(command.Flags())
	return command
}

// Run serves health and metrics, and runs the controllers while this instance is the leader.
func (o *Options) Run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot load the kubeconfig: %w", err)
	}
	config = rest.AddUserAgent(config, name)
	config.QPS = -1                  // kube-apiserver limits requests with priority and fairness
	config.DisableCompression = true // of every event of a watch
	nsinitConfig := rest.CopyConfig(config)
	nsinitConfig.Wrap(tryOnce)
	core, coreErr := kubernetes.NewForConfig(config)
	nsinit, nsinitErr := versioned.NewForConfig(nsinitConfig)
	metadata, metadataErr := metadata.NewForConfig(config)
	apis, apisErr := aggregator.NewForConfig(config)
	if err := errors.Join(coreErr, nsinitErr, metadataErr, apisErr); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := leaderelection.NewLeaderHealthzAdaptor(leader.HealthGrace)
	stopped, err := o.serve(ctx, watchdog)
	if err != nil {
		return err
	}
	// This controller runs in every instance, so that no deletion is missed while there is no leader.
	names, err := namereuse.New(core, installation.Namespace(), timing.SystemClock())
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return names.Run(ctx) })
	group.Go(func() error {
		defer cancel()
		lead := func(ctx context.Context) error { return o.runControllers(ctx, clients{core, nsinit, metadata, apis}) }
		if c := o.LeaderElection; c.LeaderElect {
			election := leader.Election{Namespace: c.ResourceNamespace, Name: c.ResourceName,
				LeaseDuration: c.LeaseDuration.Duration, RenewDeadline: c.RenewDeadline.Duration, RetryPeriod: c.RetryPeriod.Duration}
			return election.Lead(ctx, core, watchdog, lead)
		}
		return lead(ctx)
	})
	err = group.Wait()
	cancel()
	<-stopped
	return err
}

// tryOnce removes the header Retry-After from responses, so that the client does not retry. The queue
// retries with a growing delay. Meanwhile no worker waits, and the conditions of the namespace have the
// reason.
func tryOnce(next http.RoundTripper) http.RoundTripper { return &once{next} }

type once struct{ next http.RoundTripper }

var _ interface {
	http.RoundTripper
	// The client uses this to close idle connections.
	WrappedRoundTripper() http.RoundTripper
} = (*once)(nil)

// RoundTrip implements http.RoundTripper.
func (o *once) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	if response != nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper returns the wrapped round tripper.
func (o *once) WrappedRoundTripper() http.RoundTripper { return o.next }
