/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nsinit/nsinit/pkg/diagnosis"
)

// Kubectl runs the real kubectl, and returns what it prints and what it says of an error.
func (c *Cluster) Kubectl(args ...string) (string, error) {
	command := exec.Command(filepath.Join(c.Root, "_output", "bin", "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...)
	command.Env = append(os.Environ(), "HOME="+c.Dir)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// KubectlInput runs kubectl with something on its standard input.
func (c *Cluster) KubectlInput(input string, args ...string) (string, error) {
	file, err := os.CreateTemp("", "nsinit-e2e-*.yaml")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if _, err := file.WriteString(input); err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	return c.Kubectl(append(args, "-f", file.Name())...)
}

// MustPlugin runs the plugin, which has to succeed.
func (c *Cluster) MustPlugin(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := c.Plugin(t, args...)
	if code != 0 {
		t.Fatalf("kubectl nsinit %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// RefusedPlugin runs the plugin, which has to fail, say so, and print nothing.
func (c *Cluster) RefusedPlugin(t *testing.T, says string, args ...string) {
	t.Helper()
	stdout, stderr, code := c.Plugin(t, args...)
	if code != 1 || !strings.HasPrefix(stderr, "error: ") || !strings.Contains(stderr, says) || stdout != "" {
		t.Errorf("kubectl nsinit %s: exit code %d, want it to say %q\n%s%s", strings.Join(args, " "), code, says, stdout, stderr)
	}
}

// Plugin runs kubectl-nsinit by the real kubectl, and returns what it prints, what it says of
// errors, and its exit code.
func (c *Cluster) Plugin(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	bin := filepath.Join(c.Root, "_output", "bin")
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), append([]string{"nsinit"}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "HOME="+c.Dir, "PATH="+bin+":"+os.Getenv("PATH"))
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// Why returns the diagnosis of a namespace, after comparing the exit code with it.
func (c *Cluster) Why(t *testing.T, namespace string, args ...string) (*diagnosis.Diagnosis, error) {
	t.Helper()
	stdout, stderr, code := c.Plugin(t, append([]string{"why", namespace, "--output=json"}, args...)...)
	if code == 1 {
		return nil, errors.New(stderr)
	}
	var found diagnosis.Diagnosis
	if err := json.Unmarshal([]byte(stdout), &found); err != nil {
		return nil, fmt.Errorf("%w in %q, %s", err, stdout, stderr)
	}
	if want := map[diagnosis.State]int{diagnosis.Healthy: 0, diagnosis.Waiting: 2, diagnosis.Stuck: 3}[found.State]; code != want {
		t.Errorf("%s: the exit code is %d", found.State, code)
	}
	return &found, nil
}

// WaitWhy waits until a cause is found in a namespace.
func (c *Cluster) WaitWhy(t *testing.T, namespace string, cause diagnosis.Cause, state diagnosis.State, args ...string) diagnosis.Finding {
	t.Helper()
	var finding diagnosis.Finding
	Eventually(t, fmt.Sprintf("%s is %s because of %s", namespace, state, cause), func(context.Context) error {
		found, err := c.Why(t, namespace, args...)
		if err != nil {
			return err
		}
		for _, finding = range found.Findings {
			if finding.Cause == cause && finding.State == state {
				return nil
			}
		}
		return fmt.Errorf("found %s", JSON(t, found))
	})
	t.Logf("| %s | %s |", cause, finding.Message)
	return finding
}

// ApplyInput applies a manifest until the test ends.
func (c *Cluster) ApplyInput(t *testing.T, manifest string) {
	t.Helper()
	if _, err := c.KubectlInput(manifest, "apply", "--server-side"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.KubectlInput(manifest, "delete", "--ignore-not-found") })
}
