/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"
)

// As in components/apiserver.
const (
	probePath        = "/readyz?exclude=etcd&exclude=storage-identity&exclude=configurations&exclude=serving-certificate"
	probeTimeout     = 5 * time.Second
	failureThreshold = 3
	// probePeriod is shorter than there, as all times of the campaign are.
	probePeriod = 500 * time.Millisecond
)

// replica is an nsinit-apiserver behind the balancer.
type replica struct {
	name, link string // link: the address through which the balancer reaches it
	ready      atomic.Bool
}

// balance makes the links between the aggregator and the replicas of nsinit-apiserver. The first of
// them does what kube-proxy does for a Service: it passes each new connection on to one of the
// replicas that are ready.
func (c *Cluster) balance() error {
	for i := range c.options.Topology.NsinitAPIServers {
		name := replicaName(nsinitAPIServer, i)
		link := aggregator + "/" + name
		if _, err := c.forward(link, name); err != nil {
			return err
		}
		c.replicas = append(c.replicas, &replica{name: name, link: c.address(link + " to " + name)})
	}
	var next atomic.Uint64
	_, err := c.forwardTo(aggregator, aggregator, func() string {
		var ready []string
		for _, r := range c.replicas {
			if r.ready.Load() {
				ready = append(ready, r.link)
			}
		}
		if len(ready) == 0 {
			return ""
		}
		return ready[next.Add(1)%uint64(len(ready))]
	})
	return err
}

// probe sets whether the replicas are ready, as a kubelet does, until the context ends.
func (c *Cluster) probe(ctx context.Context) {
	for _, r := range c.replicas {
		c.watching.Go(func() {
			ticker := time.NewTicker(probePeriod)
			defer ticker.Stop()
			for failures := 0; ; {
				switch err := c.healthy(ctx, c.url(r.name)+probePath); {
				case err == nil:
					failures = 0
					r.ready.Store(true)
				case errors.Is(err, syscall.ECONNREFUSED): // its container has ended
					r.ready.Store(false)
				default:
					if failures++; failures >= failureThreshold {
						r.ready.Store(false)
					}
				}
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
}
