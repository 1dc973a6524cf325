/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package proxy

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// A connection holds back up to maxChunks of at most chunkSize bytes in each direction. A sender of more
// waits. There are many, because a busy sender of small messages fills one with each.
const (
	chunkSize = 32 << 10
	maxChunks = 16 << 10
)

// connection is a connection to a link and the one that the link makes for it.
type connection struct {
	cancel context.CancelFunc

	mu    sync.Mutex
	ends  []*net.TCPConn
	isCut bool
}

// chunk is what is delivered at one time. Without bytes, it is the end of the stream.
type chunk struct {
	bytes []byte
	at    time.Time
}

// reset closes both sides at the same time.
func (c *connection) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	c.cancel()
	for _, end := range c.ends {
		_ = end.SetLinger(0)
		_ = end.Close()
	}
}

// add makes a side part of the connection, or closes it if the connection was reset.
func (c *connection) add(end *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		_ = end.SetLinger(0)
		_ = end.Close()
		return false
	}
	c.ends = append(c.ends, end)
	return true
}

// serve passes one connection on, until it ends.
func (l *Link) serve(from *net.TCPConn, target func() string) {
	ctx, cancel := context.WithCancel(l.ctx)
	c := &connection{cancel: cancel, ends: []*net.TCPConn{from}}
	defer c.reset() // both sides have ended by themselves, or one with an error
	l.mu.Lock()
	isCut := l.cut // since it was accepted
	l.connections[c] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.connections, c)
	}()
	if isCut || !l.waitDelivers(ctx) {
		return
	}
	address := target()
	if address == "" {
		return
	}
	dialed, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	to := dialed.(*net.TCPConn)
	if !c.add(to) {
		return
	}
	var directions sync.WaitGroup
	directions.Go(func() { l.pump(ctx, c, from, to) })
	directions.Go(func() { l.pump(ctx, c, to, from) })
	directions.Wait()
}

// pump delivers what one side sends to the other. An error on either side resets both.
func (l *Link) pump(ctx context.Context, c *connection, from, to *net.TCPConn) {
	chunks := newQueue()
	go l.receive(ctx, from, chunks)
	for {
		next, ok := chunks.pop(ctx)
		if !ok || !sleepUntil(ctx, next.at) || !l.waitDelivers(ctx) {
			c.reset()
			return
		}
		if next.bytes == nil {
			_ = to.CloseWrite()
			return
		}
		if _, err := to.Write(next.bytes); err != nil {
			c.reset()
			return
		}
	}
}

// receive reads until the stream ends.
func (l *Link) receive(ctx context.Context, from *net.TCPConn, chunks *queue) {
	buffer := make([]byte, chunkSize)
	for ended := false; !ended; {
		n, err := from.Read(buffer)
		at := time.Now().Add(l.latency())
		if n > 0 && !chunks.push(ctx, chunk{bytes: slices.Clone(buffer[:n]), at: at}) {
			return
		}
		if ended = err != nil; ended {
			chunks.push(ctx, chunk{at: at})
		}
	}
}

// queue holds the chunks of one direction. Most of the time, there are none.
type queue struct {
	mu     sync.Mutex
	chunks []chunk
	// filled and emptied have a value when a chunk was added, or removed.
	filled, emptied chan struct{}
}

func newQueue() *queue {
	return &queue{filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

// push adds a chunk when there is space. It returns false if the context ends before.
func (q *queue) push(ctx context.Context, next chunk) bool {
	return q.change(ctx, q.filled, q.emptied, func() bool {
		if len(q.chunks) >= maxChunks {
			return false
		}
		q.chunks = append(q.chunks, next)
		return true
	})
}

// pop removes the first chunk when there is one. It returns false if the context ends before.
func (q *queue) pop(ctx context.Context) (first chunk, ok bool) {
	ok = q.change(ctx, q.emptied, q.filled, func() bool {
		if len(q.chunks) == 0 {
			return false
		}
		first = q.chunks[0]
		if q.chunks = q.chunks[1:]; len(q.chunks) == 0 {
			q.chunks = nil
		}
		return true
	})
	return first, ok
}

// change tries a change until it succeeds, again after each change of the other side. Then it wakes the other side.
func (q *queue) change(ctx context.Context, wakes, other chan struct{}, try func() bool) bool {
	for {
		q.mu.Lock()
		done := try()
		q.mu.Unlock()
		if done {
			select {
			case wakes <- struct{}{}:
			default:
			}
			return ctx.Err() == nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return false
		}
	}
}

// sleepUntil returns false if the context ends before.
func sleepUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
