/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package options

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/nsinit/nsinit/pkg/installation"
)

// completed parses flags and completes the options.
func completed(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	o := New()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o, o.Complete()
}

func TestStorageOptions(t *testing.T) {
	tests := map[string]struct {
		args     []string
		embedded bool
		server   string
		err      string
	}{
		"the default is embedded": {nil, true, "unix:///var/lib/nsinit/etcd/client.sock", ""},
		"embedded, elsewhere":     {[]string{"--embedded-etcd-dir=/data"}, true, "unix:///data/client.sock", ""},
		"a cluster": {[]string{"--etcd-servers=https://127.0.0.1:2379", "--etcd-cafile=ca", "--etcd-certfile=cert", "--etcd-keyfile=key"},
			false, "https://127.0.0.1:2379", ""},
		"both": {[]string{"--embedded-etcd-dir=/data", "--etcd-servers=https://127.0.0.1:2379"}, false, "",
			"--embedded-etcd-dir=/data and --etcd-servers=[https://127.0.0.1:2379] cannot be combined"},
		"a path that is too long for a socket": {[]string{"--embedded-etcd-dir=/" + strings.Repeat("x", 100)}, false, "", "choose a directory with a shorter path"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := completed(t, test.args...)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want it to say %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			servers := o.Recommended.Etcd.StorageConfig.Transport.ServerList
			if o.embedded != test.embedded || len(servers) != 1 || servers[0] != test.server {
				t.Errorf("embedded %v, servers %v", o.embedded, servers)
			}
		})
	}
}

// TestOneKubeconfig: one kubeconfig serves for everything unless told otherwise.
func TestOneKubeconfig(t *testing.T) {
	o, err := completed(t, "--kubeconfig=core", "--authorization-kubeconfig=other")
	if err != nil {
		t.Fatal(err)
	}
	if o.Recommended.Authentication.RemoteKubeConfigFile != "core" || o.Recommended.Authorization.RemoteKubeConfigFile != "other" {
		t.Errorf("authentication %q, authorization %q", o.Recommended.Authentication.RemoteKubeConfigFile, o.Recommended.Authorization.RemoteKubeConfigFile)
	}
}

// TestAdmissionChain: nsinit's own plugins in their order, and those that evaluate the policies and webhooks of the cluster.
func TestAdmissionChain(t *testing.T) {
	o := New()
	if got := strings.Join(o.Recommended.Admission.Plugins.Registered(), " "); got != "MutatingAdmissionPolicy MutatingAdmissionWebhook NamespaceInitializers NamespaceLifecycleProtection StorageSpace "+
		"ValidatingAdmissionPolicy ValidatingAdmissionWebhook" {
		t.Errorf("registered: %s", got)
	}
	if got := strings.Join(o.Recommended.Admission.RecommendedPluginOrder, " "); got != "StorageSpace NamespaceLifecycleProtection NamespaceInitializers "+
		"MutatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionPolicy ValidatingAdmissionWebhook" {
		t.Errorf("order: %s", got)
	}
}

// TestEmulatedVersion: a server emulates no version that is not known yet.
func TestEmulatedVersion(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		err  string
	}{
		"this version":   {[]string{"--emulated-version=nsinit=" + installation.BinaryVersion}, ""},
		"the one before": {[]string{"--emulated-version=nsinit=0.0"}, ""},
		"a later one":    {[]string{"--emulated-version=nsinit=99.0"}, "emulation version 99.0 is not between"},
	} {
		t.Run(name, func(t *testing.T) {
			o := New()
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.AddFlags(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			err := errors.Join(o.Registry.Set(), errors.Join(o.Registry.Validate()...))
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}
