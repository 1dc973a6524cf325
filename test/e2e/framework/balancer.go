/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	discoveryv1ac "k8s.io/client-go/applyconfigurations/discovery/v1"

	"github.com/nsinit/nsinit/pkg/installation"
)

// balancer does for one service what kube-proxy does: it forwards each new connection to the next replica that is ready.
// Connections that exist stay.
type balancer struct {
	listener net.Listener
	ready    func() []string
	next     atomic.Int64
}

// Balance forwards connections to the service of nsinit-apiserver to the ready addresses, until the test ends. An EndpointSlice says
// whether there is one: kube-controller-manager maintains none for a service on loopback.
func (c *Cluster) Balance(t *testing.T, ready func() []string) {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.Ports(t)["nsinit-apiserver"]))
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: listener, ready: ready}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { b.serve(ctx) })
	work.Go(func() { c.publish(ctx, ready) })
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		work.Wait()
	})
}

// publish maintains the EndpointSlice.
func (c *Cluster) publish(ctx context.Context, ready func() []string) {
	published := false
	_ = utilwait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		is := len(ready()) > 0
		if is == published {
			return false, nil
		}
		services, err := c.Core.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", installation.APIServer).String()})
		if err != nil {
			return false, nil
		}
		for _, service := range services.Items {
			slice := discoveryv1ac.EndpointSlice("e2e", service.Namespace).WithLabels(map[string]string{discoveryv1.LabelServiceName: service.Name}).
				WithAddressType(discoveryv1.AddressTypeIPv4).WithEndpoints(discoveryv1ac.Endpoint().WithAddresses("192.0.2.1").WithConditions(discoveryv1ac.EndpointConditions().WithReady(is)))
			if _, err := c.Core.DiscoveryV1().EndpointSlices(service.Namespace).Apply(ctx, slice, metav1.ApplyOptions{FieldManager: "e2e", Force: true}); err == nil {
				published = is
			}
		}
		return false, nil
	})
}

// pick returns the next replica that is ready.
func (b *balancer) pick() string {
	ready := b.ready()
	if len(ready) == 0 {
		return ""
	}
	return ready[int(b.next.Add(1))%len(ready)]
}

func (b *balancer) serve(ctx context.Context) {
	for {
		from, err := b.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = from.Close() }()
			to, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.pick())
			if err != nil {
				return
			}
			defer func() { _ = to.Close() }()
			stop := context.AfterFunc(ctx, func() { _ = from.Close(); _ = to.Close() })
			defer stop()
			go func() { // when one side ends, the other does
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}()
			_, _ = io.Copy(from, to)
		}()
	}
}
