/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests that use the common control plane run one after the other. So do those that only use one of
// their own, beside the former.
var common, separate, lanes = sync.Mutex{}, sync.Mutex{}, sync.Map{} //nolint:gochecknoglobals // locks

// enter makes a test wait for its turn in a lane, unless it has entered one.
func enter(t *testing.T, lane *sync.Mutex) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	if _, entered := lanes.LoadOrStore(test, true); entered {
		return
	}
	if test != t.Name() {
		t.Fatalf("%s has to call connect or another, not its subtest", test)
	}
	t.Parallel()
	lane.Lock()
	began := time.Now()
	t.Cleanup(func() {
		lanes.Delete(test)
		lane.Unlock()
		t.Logf("took %s", time.Since(began).Round(time.Second))
	})
}

// Connect returns the running control plane. Without one, the test fails.
func Connect(t *testing.T) *Cluster {
	t.Helper()
	enter(t, &common)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Root: root, Dir: os.Getenv("NSINIT_DEV_DIR")}
	if c.Dir == "" {
		c.Dir = filepath.Join(root, "_output", "dev")
	}
	c.load(t)
	return c
}

// Another starts a control plane of the test's own, for what would spoil the common one. It
// takes the arguments of dev up.
func Another(t *testing.T, up ...string) *Cluster {
	t.Helper()
	enter(t, &separate)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nsinit-e2e")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Root: root, Dir: dir}
	t.Cleanup(func() {
		c.Dev(t, "down")
		_ = os.RemoveAll(dir)
	})
	c.Dev(t, append([]string{"up"}, up...)...)
	c.load(t)
	return c
}
