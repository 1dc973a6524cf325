//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// watchWhy runs kubectl-nsinit why --watch, which ends after three times the framework's Patience. It returns its output and the command.
func watchWhy(t *testing.T, c *framework.Cluster, args ...string) (io.Reader, *exec.Cmd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*framework.Patience)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, filepath.Join(framework.BinDir(), "kubectl-nsinit"), append([]string{"why", "--watch", "--patience=1s"}, args...)...)
	command.Env = c.Environ()
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return out, command
}

// readLine reads lines up to one that is like a pattern.
func readLine(t *testing.T, lines *bufio.Scanner, pattern string) {
	t.Helper()
	for lines.Scan() {
		if regexp.MustCompile(pattern).MatchString(lines.Text()) {
			return
		}
	}
	t.Errorf("no line is like %s", pattern)
}

// TestWhyWatch: why --watch prints each change, ends when the namespace is removed, and ends with the exit code of the last
// state when it is interrupted.
func TestWhyWatch(t *testing.T) {
	c := framework.Share(t)
	namespace := c.CreateNamespace(t, c.Admin).Name
	c.WaitReady(t, namespace)
	holdBy(t, c, namespace, "billing", framework.Holder)
	c.DeleteNamespace(t, namespace)
	c.WaitWhy(t, namespace, diagnosis.NamespaceFinalizer, diagnosis.Stuck, "--patience=1s")

	all, watcher := watchWhy(t, c, "--all")
	lines := bufio.NewScanner(all)
	readLine(t, lines, `^\d\d:\d\d:\d\d +`+namespace+` +Terminating +Stuck +NamespaceFinalizer +Unknown +metadata.finalizers has`)

	held, interrupted := watchWhy(t, c, namespace)
	if line, err := bufio.NewReader(held).ReadString('\n'); err != nil {
		t.Errorf("it prints %q, %v", line, err)
	}
	if err := interrupted.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, held)
	if err := interrupted.Wait(); interrupted.ProcessState.ExitCode() != 3 {
		t.Errorf("the watch of a namespace that is stuck ends with %v, want exit code 3", err)
	}

	stream, single := watchWhy(t, c, namespace, "--output=json")
	objects := json.NewDecoder(stream)
	var first, last diagnosis.Diagnosis
	if err := objects.Decode(&first); err != nil || first.Findings[0].Cause != diagnosis.NamespaceFinalizer {
		t.Errorf("the first object is %s, %v", framework.JSON(t, first), err)
	}
	if _, err := c.Kubectl("patch", "namespace", namespace, "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`); err != nil {
		t.Fatal(err)
	}
	for objects.Decode(&last) == nil {
	}
	if err := single.Wait(); err != nil || last.Phase != diagnosis.Gone || last.State != diagnosis.Healthy {
		t.Errorf("the last object is %s, %v", framework.JSON(t, last), err)
	}
	readLine(t, lines, `^\d\d:\d\d:\d\d +`+namespace+` +\w+ +Resolved +NamespaceFinalizer`)
	readLine(t, lines, `^\d\d:\d\d:\d\d +`+namespace+` +Gone +Healthy `)
	if err := watcher.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, all)
	if err := watcher.Wait(); watcher.ProcessState.ExitCode() == 1 || watcher.ProcessState.ExitCode() < 0 {
		t.Errorf("it ends with %v", err)
	}
}
