/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// kubectl runs the cluster's kubectl with a kubeconfig, and returns what it prints. The
// error holds what it says on standard error.
func (c *Cluster) kubectl(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	return c.kubectlInput(ctx, kubeconfig, "", args...)
}

func (c *Cluster) kubectlInput(ctx context.Context, kubeconfig, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl"), args...)
	// Its discovery cache belongs to this control plane, and so does its plugin.
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+c.Dir, "PATH="+c.BinDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	command.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Admin runs kubectl as the administrator.
func (c *Cluster) Admin(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, c.AdminKubeconfig(), args...)
}

// AdminKubeconfig is the kubeconfig of the administrator.
func (c *Cluster) AdminKubeconfig() string { return filepath.Join(c.Dir, "admin.kubeconfig") }

// UserKubeconfig makes a client certificate for a user and a kubeconfig that holds it. Its
// name is another one for each user and set of groups.
func (c *Cluster) UserKubeconfig(user string, groups ...string) (string, error) {
	if user == "" || slices.Contains(groups, "") {
		return "", errors.New("the names of users and groups cannot be empty")
	}
	var escaped []string
	for _, part := range append([]string{user}, groups...) {
		escaped = append(escaped, url.QueryEscape(part))
	}
	name := "user-" + strings.Join(escaped, ",")
	return filepath.Join(c.Dir, name+".kubeconfig"), c.ensureKubeconfig(name, user, groups...)
}

// ensureKubeconfig writes NAME.kubeconfig for a user of the cluster.
func (c *Cluster) ensureKubeconfig(name, user string, groups ...string) error {
	if err := c.PKI().EnsureClient("client-"+name, "ca", user, groups...); err != nil {
		return err
	}
	return c.WriteKubeconfig(name, name, c.Ports["kube-apiserver"])
}

// WriteKubeconfig writes NAME.kubeconfig, by which a program or user that has a kubeconfig
// reaches kube-apiserver on another port.
func (c *Cluster) WriteKubeconfig(name, program string, port int) error {
	identity := "client-" + program
	embed := func(path string) (string, error) {
		data, err := os.ReadFile(path)
		return base64.StdEncoding.EncodeToString(data), err
	}
	ca, err := embed(c.PKI().Cert("ca"))
	if err != nil {
		return err
	}
	cert, err := embed(c.PKI().Cert(identity))
	if err != nil {
		return err
	}
	key, err := embed(c.PKI().Key(identity))
	if err != nil {
		return err
	}
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: nsinit-dev
  cluster: {%s, certificate-authority-data: %s}
users:
- name: user
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: nsinit-dev
  context: {cluster: nsinit-dev, user: user}
current-context: nsinit-dev
`, serverURL(port), ca, cert, key)
	return os.WriteFile(filepath.Join(c.Dir, name+".kubeconfig"), []byte(kubeconfig), 0o600)
}
