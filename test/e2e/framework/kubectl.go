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

// Kubectl runs kubectl as an administrator. It returns the standard output, and the standard error as part of the error.
func (c *Cluster) Kubectl(args ...string) (string, error) {
	command := exec.Command(filepath.Join(BinDir(), "kubectl"), args...)
	command.Env = c.Environ()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// KubectlInput runs kubectl with a file of this content as its argument -f.
func (c *Cluster) KubectlInput(input string, args ...string) (string, error) {
	file, err := os.CreateTemp("", "nsinit-input-*.yaml")
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

// ApplyInput applies manifests until the test ends.
func (c *Cluster) ApplyInput(t *testing.T, manifests string) {
	t.Helper()
	if _, err := c.KubectlInput(manifests, "apply", "--server-side"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.KubectlInput(manifests, "delete", "--ignore-not-found") })
}

// Plugin runs kubectl nsinit as an administrator. It returns the standard output, the standard error and the exit code.
func (c *Cluster) Plugin(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(BinDir(), "kubectl"), append([]string{"nsinit"}, args...)...)
	command.Env = c.Environ()
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// MustPlugin runs kubectl nsinit, which must succeed, and returns the standard output.
func (c *Cluster) MustPlugin(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := c.Plugin(t, args...)
	if code != 0 {
		t.Fatalf("kubectl nsinit %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// RefusedPlugin runs kubectl nsinit, which must fail with a message and print nothing else.
func (c *Cluster) RefusedPlugin(t *testing.T, says string, args ...string) {
	t.Helper()
	if err := c.PluginRefuses(t, says, args...); err != nil {
		t.Error(err)
	}
}

// PluginRefuses returns an error, unless the plugin refuses arguments with an error that says something.
func (c *Cluster) PluginRefuses(t *testing.T, says string, args ...string) error {
	t.Helper()
	stdout, stderr, code := c.Plugin(t, args...)
	_, message, refused := strings.Cut("\n"+stderr, "\nerror: ") // progress comes first
	if code != 1 || !refused || !strings.Contains(message, says) || stdout != "" {
		return fmt.Errorf("kubectl nsinit %s: exit code %d, want it to say %q\n%s%s", strings.Join(args, " "), code, says, stdout, stderr)
	}
	return nil
}

// Why returns the diagnosis of a namespace by kubectl nsinit why, and checks that the exit code matches it.
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

// WaitWhy waits until kubectl nsinit why finds a cause in a namespace.
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
