/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Link passes connections on. Its methods can be called at any time, also concurrently.
type Link struct {
	name   string
	ctx    context.Context // the life of the link
	close  context.CancelFunc
	active sync.WaitGroup

	mu          sync.Mutex
	forwards    []*forward
	connections map[*connection]struct{}
	delay       time.Duration
	cut         bool
	dropped     chan struct{} // closed when the link is healed; nil: nothing is dropped
}

// forward is one address on which a link listens.
type forward struct {
	address  string
	target   func() string
	listener net.Listener // nil while the link is cut
}

// New returns a link that listens nowhere yet.
func New(name string) *Link {
	ctx, cancel := context.WithCancel(context.Background())
	return &Link{name: name, ctx: ctx, close: cancel, connections: map[*connection]struct{}{}}
}

// Name returns the name of the link.
func (l *Link) Name() string { return l.name }

// Fixed is a target that does not change.
func Fixed(address string) func() string { return func() string { return address } }

// Forward listens on an address, such as 127.0.0.1:0, and passes each connection on to the address
// that target returns when it arrives. If target returns nothing, the connection is reset. It
// returns the address on which it listens.
func (l *Link) Forward(address string, target func() string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return "", fmt.Errorf("link %s is cut", l.name)
	}
	f := &forward{address: address, target: target}
	if err := l.listen(f); err != nil {
		return "", err
	}
	f.address = f.listener.Addr().String()
	l.forwards = append(l.forwards, f)
	return f.address, nil
}

func (l *Link) listen(f *forward) error {
	listener, err := (&net.ListenConfig{}).Listen(l.ctx, "tcp", f.address)
	if err != nil {
		return fmt.Errorf("link %s: %w", l.name, err)
	}
	f.listener = listener
	l.active.Go(func() {
		for {
			accepted, err := listener.Accept()
			if err != nil {
				return // the link was cut or closed
			}
			l.active.Go(func() { l.serve(accepted.(*net.TCPConn), f.target) })
		}
	})
	return nil
}

// Delay delivers what arrives from now on later by d, in both directions. Zero ends the delay.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Drop accepts connections and delivers nothing, not even the end of a connection, until Heal.
func (l *Link) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped == nil {
		l.dropped = make(chan struct{})
	}
}

// Cut resets the connections and refuses new ones until Heal.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, f := range l.forwards {
		if f.listener != nil {
			_ = f.listener.Close()
			f.listener = nil
		}
	}
	l.reset()
}

// Reset resets the connections. New ones are passed on.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reset()
}

func (l *Link) reset() {
	for c := range l.connections {
		c.reset()
	}
}

// Heal ends Delay, Drop and Cut. The error is of an address on which another program listens since
// the link was cut; Heal can be called again.
func (l *Link) Heal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = 0
	if l.dropped != nil {
		close(l.dropped)
		l.dropped = nil
	}
	if l.ctx.Err() != nil {
		return fmt.Errorf("link %s is closed", l.name)
	}
	l.cut = false
	var errs []error
	for _, f := range l.forwards {
		if f.listener == nil {
			errs = append(errs, l.listen(f))
		}
	}
	return errors.Join(errs...)
}

// Healthy reports whether the link neither delays nor drops nor is cut.
func (l *Link) Healthy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay == 0 && l.dropped == nil && !l.cut
}

// Connections returns the number of connections.
func (l *Link) Connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.connections)
}

// Close cuts the link for good and waits until everything has ended.
func (l *Link) Close() {
	l.Cut()
	l.close()
	l.active.Wait()
}

// latency returns how much later what arrives now is delivered.
func (l *Link) latency() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

// waitDelivers waits until the link does not drop. It returns false if the context ends before.
func (l *Link) waitDelivers(ctx context.Context) bool {
	for {
		l.mu.Lock()
		dropped := l.dropped
		l.mu.Unlock()
		if dropped == nil {
			return ctx.Err() == nil
		}
		select {
		case <-dropped:
		case <-ctx.Done():
			return false
		}
	}
}
