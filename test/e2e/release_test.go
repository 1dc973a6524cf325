//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

const (
	releaseVersion = "v0.1.98"
	releaseImage   = "registry.example.com/team/nsinit"
)

// release is a release for the platform of this machine.
type release struct {
	root string
	// dir has the files of the release, tools the programs of its users, and work what is unpacked.
	dir, tools, work string
}

// newRelease builds a release with a new key.
func newRelease(t *testing.T, root string) *release {
	t.Helper()
	r := &release{root: root, dir: filepath.Join(t.TempDir(), "release"), tools: t.TempDir(), work: t.TempDir()}
	r.run(t, filepath.Join(root, "test", "release"), nil, "go", "build", "-trimpath", "-buildvcs=false", "-o", r.tools, ".", "tool")
	password := "COSIGN_PASSWORD=secret"
	r.run(t, root, []string{password}, r.tool("release"), "key", r.work)
	built := r.run(t, root, []string{
		password, "COSIGN_KEY=" + filepath.Join(r.work, "cosign.key"), "VERSION=" + releaseVersion, "REPOSITORY=" + releaseImage,
		"RELEASE_DIR=" + r.dir, "SNAPSHOT=true",
	}, "hack/release.sh", "linux/"+runtime.GOARCH)
	t.Log("\n" + built)
	return r
}

func (r *release) tool(name string) string { return filepath.Join(r.tools, name) }

// run runs a command with low priority, and returns its output.
func (r *release) run(t *testing.T, dir string, environ []string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "nice", append([]string{"-n", "19"}, args...)...)
	command.Dir, command.Env = dir, append(os.Environ(), environ...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestRelease builds a release, and installs it from its files only: the programs of the image, the rendered manifests, and the
// plugin that krew installs. It runs the commands of the documents.
func TestRelease(t *testing.T) {
	i := &installation{Cluster: framework.Another(t, "--only-kube")}
	r := newRelease(t, i.Root)
	t.Log("\n" + r.run(t, i.Root, nil, r.tool("release"), "verify", r.dir, filepath.Join(r.work, "cosign.pub")))
	r.refused(t)
	digest := strings.TrimSpace(r.run(t, i.Root, nil, r.tool("release"), "unpack", r.dir, "linux/"+runtime.GOARCH, filepath.Join(r.work, "image")))
	r.run(t, r.work, nil, "tar", "--extract", "--file="+filepath.Join(r.dir, "nsinit-manifests.tar.gz"))

	i.node = i.StartNode(t, map[string]string{releaseImage + "@" + digest: filepath.Join(r.work, "image")})
	i.Balance(t, func() []string { return i.node.Addresses("nsinit-apiserver") })
	krew := filepath.Join(r.work, "krew")
	i.words = map[string]string{
		"linux-amd64":              "linux-" + runtime.GOARCH,
		"kubectl krew":             "KREW_NO_UPGRADE_CHECK=1 KREW_ROOT=" + krew + " " + r.tool("krew"),
		"-f install-embedded.yaml": "-k " + i.Rendered(t, filepath.Join(r.dir, "install-embedded.yaml")),
		"kubectl nsinit":           filepath.Join(krew, "bin", "kubectl-nsinit"),
		"artifacts/examples":       filepath.Join(r.work, "artifacts", "examples"),
	}
	shell := func(commands string) string {
		t.Helper()
		out, err := i.Shell(t, "cd "+r.dir+"\n"+commands, i.words)
		if err != nil {
			t.Fatalf("%s\n%v\n%s", commands, err, out)
		}
		t.Logf("\n%s\n%s", commands, out)
		return out
	}
	shell(i.Documented(t, framework.ReleaseGuide, "Verify a release")[0])
	// The index of krew expects this name.
	shell("cp krew-nsinit.yaml " + r.work + "/nsinit.yaml && " + r.tool("validate-krew-manifest") + " -skip-install -manifest=" + r.work + "/nsinit.yaml")
	shell(i.Documented(t, framework.ReleaseGuide, "Install the plugin with krew")[0])
	shell(i.Documented(t, framework.InstallGuide, "Install a release")[0])
	if out := shell("kubectl nsinit version"); strings.Count(out, releaseVersion) != 2 {
		t.Errorf("the versions are\n%s\nwant %s of the plugin and of nsinit-apiserver", out, releaseVersion)
	}
	i.work(t)
	i.dryRunChart(t, r, releaseImage+"@"+digest)
}

// dryRunChart checks that Helm pulls the chart from a registry, and that kube-apiserver accepts what it renders.
func (i *installation) dryRunChart(t *testing.T, r *release, image string) {
	t.Helper()
	version, err := i.Core.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	chart := filepath.Join(r.work, "chart.yaml")
	t.Log(r.run(t, i.Root, nil, r.tool("release"), "chart", r.dir, version.GitVersion, chart))
	if rendered, err := os.ReadFile(chart); err != nil || strings.Count(string(rendered), `image: "`+image+`"`) != 3 {
		t.Errorf("%v: the chart does not have the image %s", err, image)
	}
	if out, err := i.Kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", chart); err != nil {
		t.Errorf("the chart: %v\n%s", err, out)
	}
}

// refused checks that a release is not verified with another key or with a changed file, and that krew does not install another
// archive.
func (r *release) refused(t *testing.T) {
	t.Helper()
	other := t.TempDir()
	r.run(t, r.root, nil, r.tool("release"), "key", other)
	refuses := func(want string, args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), args[0], args[1:]...)
		command.Env = append(os.Environ(), "KREW_ROOT="+other, "KREW_NO_UPGRADE_CHECK=1")
		if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s\nwant %q", args, err, out, want)
		}
	}
	refuses("nsinit-image.tar: signature: ", r.tool("release"), "verify", r.dir, filepath.Join(other, "cosign.pub"))
	refuses("checksum does not match", r.tool("krew"), "install", "--manifest="+filepath.Join(r.dir, "krew-nsinit.yaml"), "--archive="+filepath.Join(r.dir, "nsinit-manifests.tar.gz"))

	file := filepath.Join(r.dir, "install-ha.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses("install-ha.yaml: SHA256SUMS does not contain", r.tool("release"), "verify", r.dir, filepath.Join(r.work, "cosign.pub"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
