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
)

// balancer does for one service what kube-proxy does: it forwards each new connection to the next replica that is ready.
// Connections that exist stay.
type balancer struct {
	listener net.Listener
	ready    func() []string
	next     atomic.Int64
}

// Balance forwards connections to the service of nsinit-apiserver to the ready addresses, until the test ends.
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
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		work.Wait()
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
