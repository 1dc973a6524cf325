/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPKI(t *testing.T) {
	p := PKI{Dir: t.TempDir()}
	for _, step := range []func() error{
		func() error { return p.EnsureCA("ca") },
		func() error { return p.EnsureServing("server", "ca", "a.b.svc") },
		func() error { return p.EnsureClient("client", "ca", "alice", "team-a") },
		func() error { return p.EnsureKey("tokens") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := os.ReadFile(p.Cert("ca"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for name, usage := range map[string]x509.ExtKeyUsage{"server": x509.ExtKeyUsageServerAuth, "client": x509.ExtKeyUsageClientAuth} {
		pair, err := tls.LoadX509KeyPair(p.Cert(name), p.Key(name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	before, _ := os.ReadFile(p.Cert("client"))
	if err := p.EnsureClient("client", "ca", "alice", "team-a"); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(p.Cert("client")); string(after) != string(before) {
		t.Error("a certificate that exists was replaced")
	}
}

// TestPKIRenews: a certificate for another subject, or from a CA that was replaced, is replaced.
func TestPKIRenews(t *testing.T) {
	p := PKI{Dir: t.TempDir()}
	groups := []string{"z", "a"}
	ensure := func() []byte {
		t.Helper()
		if err := errors.Join(p.EnsureCA("ca"), p.EnsureClient("client", "ca", "alice", groups...)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(p.Cert("client"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	first := ensure()
	if again := ensure(); !bytes.Equal(first, again) {
		t.Error("a valid certificate was replaced")
	}
	groups = []string{"z", "b"}
	second := ensure()
	if bytes.Equal(first, second) {
		t.Error("a certificate for other groups was kept")
	}
	if err := os.Remove(p.Key("ca")); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(second, ensure()) {
		t.Error("a certificate of a CA that was replaced was kept")
	}
}

// TestPKIReissues: a certificate is replaced by one for the same key and names.
func TestPKIReissues(t *testing.T) {
	p := PKI{Dir: t.TempDir()}
	if err := errors.Join(p.EnsureCA("ca"), p.EnsureServing("server", "ca", "a.b.svc")); err != nil {
		t.Fatal(err)
	}
	before, signer, err := p.load("server")
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(-time.Hour)
	if err := p.Reissue("server", "ca", until); err != nil {
		t.Fatal(err)
	}
	after, sameKey, err := p.load("server")
	if err != nil {
		t.Fatal(err)
	}
	ca, _, err := p.load("ca")
	if err != nil {
		t.Fatal(err)
	}
	if !signer.Public().(*ecdsa.PublicKey).Equal(sameKey.Public()) || after.CheckSignatureFrom(ca) != nil || !slices.Equal(after.DNSNames, before.DNSNames) ||
		!after.NotAfter.Equal(until.UTC().Truncate(time.Second)) || after.SerialNumber.Cmp(before.SerialNumber) == 0 {
		t.Errorf("%v %s was replaced by %v %s", before.DNSNames, before.NotAfter, after.DNSNames, after.NotAfter)
	}
}

// TestUserKubeconfigs: no two users share a kubeconfig.
func TestUserKubeconfigs(t *testing.T) {
	c := &Cluster{Dir: t.TempDir(), Ports: map[string]int{"kube-apiserver": 1}}
	if err := c.PKI().EnsureCA("ca"); err != nil {
		t.Fatal(err)
	}
	seen := map[string][]string{}
	for _, user := range [][]string{
		{"alice"}, {"alice", "team"}, {"alice-team"}, {"alice,team"}, {"alice team"}, {"alice+team"}, {"alice", "team", "b"}, {"alice", "team-b"}, {"../alice"}, {"system:alice"}, {"system/alice"},
	} {
		path, err := c.UserKubeconfig(user[0], user[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[path]; other != nil || filepath.Dir(path) != c.Dir {
			t.Errorf("%q has %s, which %q has", user, path, other)
		}
		seen[path] = user
	}
	if _, err := c.UserKubeconfig(""); err == nil {
		t.Error("no error for a user without a name")
	}
}

func TestPollEndsAtFinalError(t *testing.T) {
	tries, cause := 0, errors.New("over")
	err := poll(t.Context(), time.Hour, time.Hour, func() error { tries++; return final{cause} })
	if !errors.Is(err, cause) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

func TestKubernetesVersion(t *testing.T) {
	version, err := kubernetesVersion("require (\n\tk8s.io/kubernetes v1.37.2\n)\nreplace k8s.io/api => k8s.io/api v0.37.2\n")
	if err != nil || version != "v1.37.2" {
		t.Errorf("%q, %v", version, err)
	}
	if _, err := kubernetesVersion("module x"); err == nil {
		t.Error("no error without a version")
	}
}

// TestVersions: the folders in hack/dev/kubernetes are the supported versions. The newest one runs by default, and README.md and the chart
// name all of them.
func TestVersions(t *testing.T) {
	const root = "../../.."
	modules, err := filepath.Glob(root + "/hack/dev/kubernetes/v*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatal(modules, err)
	}
	slices.Sort(modules)
	if last := filepath.Base(filepath.Dir(modules[len(modules)-1])); last != newest {
		t.Errorf("the newest version is %s, not %s", last, newest)
	}
	readme, readmeErr := os.ReadFile(root + "/README.md")
	chart, chartErr := os.ReadFile(root + "/artifacts/helm/nsinit/Chart.yaml")
	if err := errors.Join(readmeErr, chartErr); err != nil {
		t.Fatal(err)
	}
	for i, module := range modules {
		data, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		version, err := kubernetesVersion(string(data))
		if err != nil || !strings.Contains(string(readme), strings.TrimPrefix(version, "v")) {
			t.Errorf("README.md is not tested with %s: %v", version, err)
		}
		if oldest := strings.TrimPrefix(filepath.Base(filepath.Dir(module)), "v"); i == 0 && !strings.Contains(string(chart), `kubeVersion: ">=`+oldest+`.0-0"`) {
			t.Errorf("the chart does not require %s", oldest)
		}
	}
}

// TestOneVersion: modules that are built together require one version of each dependency, so that Go compiles it once.
func TestOneVersion(t *testing.T) {
	const root = "../../../"
	required := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`)
	versions := map[string]string{}
	for _, module := range []string{"", "hack/dev/kubernetes/" + newest, "sdk", "sdk/initializer/controllerruntime", "test/sdk", "hack/chart", "hack/release", "test/monitoring", "test/perf"} {
		data, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range required.FindAllStringSubmatch(string(data), -1) {
			path, version := line[1], line[2]
			if versions[path] == "" && version != "v0.0.0" { // which a replacement has
				versions[path] = version
			} else if want := versions[path]; want != version && version != "v0.0.0" {
				t.Errorf("%q requires %s %s, and another module %s: run go get %s@%s, and go mod tidy", module, path, version, want, path, want)
			}
		}
	}
}

// TestDefaultRates: measurements run kube-controller-manager with its own limits.
func TestDefaultRates(t *testing.T) {
	c := withPorts(t, t.TempDir())
	limited := func(arg string) bool { return strings.HasPrefix(arg, "--kube-api-") }
	if !slices.ContainsFunc(c.kubeControllerManagerArgs(), limited) {
		t.Error("tests wait for the default limits")
	}
	c.DefaultRates = true
	if slices.ContainsFunc(c.kubeControllerManagerArgs(), limited) {
		t.Error("the limits are not those of production")
	}
}
