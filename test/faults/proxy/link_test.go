/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const soon = 100 * time.Millisecond

// echo answers each line with the same line, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				_, _ = io.Copy(connection, connection)
				_ = connection.Close()
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); work.Wait() })
	return listener.Addr().String()
}

type client struct {
	*net.TCPConn
	lines *bufio.Reader
}

func dial(t *testing.T, address string) *client {
	t.Helper()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return &client{connection.(*net.TCPConn), bufio.NewReader(connection)}
}

// send sends a line.
func (c *client) send(t *testing.T, line string) {
	t.Helper()
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
}

// receive returns the next line, or an error after the limit.
func (c *client) receive(limit time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	line, err := c.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (c *client) roundTrip(t *testing.T, line string) {
	t.Helper()
	c.send(t, line)
	if got, err := c.receive(10 * time.Second); got != line || err != nil {
		t.Fatalf("%q was returned as %q: %v", line, got, err)
	}
}

// nothing checks that nothing arrives, not even the end.
func (c *client) nothing(t *testing.T) {
	t.Helper()
	if got, err := c.receive(soon); !isTimeout(err) {
		t.Fatalf("%q arrived: %v", got, err)
	}
}

func isTimeout(err error) bool {
	failed, is := errors.AsType[net.Error](err)
	return is && failed.Timeout()
}

// link returns a link to an echo server, and its address.
func link(t *testing.T) (*Link, string) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	l := New("a/b")
	target := echo(t)
	address, err := l.Forward("127.0.0.1:0", Fixed(target))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		if n := l.Connections(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
	return l, address
}

func heal(t *testing.T, l *Link) {
	t.Helper()
	if err := l.Heal(); err != nil || !l.Healthy() {
		t.Fatalf("healthy %t: %v", l.Healthy(), err)
	}
}

func TestForward(t *testing.T) {
	l, address := link(t)
	c := dial(t, address)
	c.roundTrip(t, "hello")
	c.roundTrip(t, strings.Repeat("long ", 1<<20))
	// The end of one direction leaves the other open.
	c.send(t, "last")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.receive(10 * time.Second); got != "last" || err != nil {
		t.Errorf("%q: %v", got, err)
	}
	if _, err := c.receive(10 * time.Second); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end", err)
	}
	eventually(t, func() bool { return l.Connections() == 0 })
}

func TestDelay(t *testing.T) {
	l, address := link(t)
	c := dial(t, address)
	c.roundTrip(t, "first")
	l.Delay(soon)
	began := time.Now()
	c.roundTrip(t, "late")
	if took := time.Since(began); took < 2*soon {
		t.Errorf("a round trip took %s", took)
	}
	// What was sent before the link is healed does not arrive after what is sent then.
	c.send(t, "before")
	heal(t, l)
	c.send(t, "after")
	for _, want := range []string{"before", "after"} {
		if got, err := c.receive(10 * time.Second); got != want || err != nil {
			t.Errorf("%q was returned as %q: %v", want, got, err)
		}
	}
}

func TestDrop(t *testing.T) {
	l, address := link(t)
	before := dial(t, address)
	before.roundTrip(t, "first")
	l.Drop()
	l.Drop()
	during := dial(t, address)
	for _, c := range []*client{before, during} {
		c.send(t, "held back")
		c.nothing(t)
	}
	heal(t, l)
	for _, c := range []*client{before, during} {
		if got, err := c.receive(10 * time.Second); got != "held back" || err != nil {
			t.Errorf("%q: %v", got, err)
		}
		c.roundTrip(t, "again")
	}
}

func TestCut(t *testing.T) {
	l, address := link(t)
	c := dial(t, address)
	c.roundTrip(t, "first")
	l.Cut()
	if _, err := c.receive(10 * time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection: %v", err)
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v", err)
	}
	heal(t, l)
	dial(t, address).roundTrip(t, "again")
}

// TestCutWhileDropped: a link that drops can be cut, and one that is healed does neither.
func TestCutWhileDropped(t *testing.T) {
	l, address := link(t)
	l.Drop()
	c := dial(t, address)
	eventually(t, func() bool { return l.Connections() == 1 })
	l.Cut()
	if _, err := c.receive(10 * time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection: %v", err)
	}
	heal(t, l)
	dial(t, address).roundTrip(t, "again")
}

func TestReset(t *testing.T) {
	l, address := link(t)
	c := dial(t, address)
	c.roundTrip(t, "first")
	l.Reset()
	if _, err := c.receive(10 * time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection: %v", err)
	}
	dial(t, address).roundTrip(t, "again")
}

// TestTargets: each connection goes where the target is when it arrives.
func TestTargets(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	l := New("balancer")
	t.Cleanup(l.Close)
	var mu sync.Mutex
	target := echo(t)
	set := func(to string) { mu.Lock(); defer mu.Unlock(); target = to }
	address, err := l.Forward("127.0.0.1:0", func() string { mu.Lock(); defer mu.Unlock(); return target })
	if err != nil {
		t.Fatal(err)
	}
	first := dial(t, address)
	first.roundTrip(t, "one")
	for _, none := range []string{"", "127.0.0.1:1"} {
		set(none)
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_, err = connection.Read(make([]byte, 1))
			_ = connection.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("with the target %q: %v", none, err)
		}
	}
	set(echo(t))
	dial(t, address).roundTrip(t, "two")
	first.roundTrip(t, "still")
}

// TestTakenPort: Heal reports an address that another program has taken, and can be called again.
func TestTakenPort(t *testing.T) {
	l, address := link(t)
	l.Cut()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Heal(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
	_ = taken.Close()
	heal(t, l)
	dial(t, address).roundTrip(t, "again")
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for !holds() {
		if !sleepUntil(ctx, time.Now().Add(time.Millisecond)) {
			t.Fatal("it does not hold")
		}
	}
}
