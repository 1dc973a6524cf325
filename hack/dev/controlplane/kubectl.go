/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// adminCommand returns a command that runs kubectl as the administrator. The discovery cache and the plugin are those of this control
// plane.
func (c *Cluster) adminCommand(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, c.program("kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.AdminKubeconfig(), "HOME="+c.Dir, "PATH="+c.BinDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return command
}

// adminInput runs kubectl as the administrator, with a standard input, and returns its standard output. The error contains its
// standard error.
func (c *Cluster) adminInput(ctx context.Context, input string, args ...string) (string, error) {
	command := c.adminCommand(ctx, args...)
	command.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Admin runs kubectl as the administrator, and returns its standard output.
func (c *Cluster) Admin(ctx context.Context, args ...string) (string, error) {
	return c.adminInput(ctx, "", args...)
}

// AdminKubeconfig is the kubeconfig of the administrator.
func (c *Cluster) AdminKubeconfig() string { return filepath.Join(c.Dir, "admin.kubeconfig") }

// UserKubeconfig makes a client certificate for a user and a kubeconfig that holds it. The name of
// the file depends on the user and the groups.
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
	const key = "nsinit-dev"
	config := api.NewConfig()
	config.Clusters[key] = &api.Cluster{Server: fmt.Sprintf("https://127.0.0.1:%d", port), CertificateAuthority: c.PKI().Cert("ca")}
	config.AuthInfos[key] = &api.AuthInfo{ClientCertificate: c.PKI().Cert("client-" + program), ClientKey: c.PKI().Key("client-" + program)}
	config.Contexts[key] = &api.Context{Cluster: key, AuthInfo: key}
	config.CurrentContext = key
	if err := api.FlattenConfig(config); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, c.path(name+".kubeconfig"))
}

// writeUserKubeconfigs writes the kubeconfigs of users again, because kube-apiserver may have another
// port now.
func (c *Cluster) writeUserKubeconfigs() error {
	files, err := filepath.Glob(c.path("user-*.kubeconfig"))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".kubeconfig")
		if !exists(c.PKI().Cert("client-" + name)) { // an administrator removed the folder pki
			continue
		}
		err = errors.Join(err, c.WriteKubeconfig(name, name, c.Ports["kube-apiserver"]))
	}
	return err
}
