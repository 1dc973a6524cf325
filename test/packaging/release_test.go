//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package packaging

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
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
	// image is the name by which containerd imports the image: that with its digest.
	image string
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

// TestRelease builds a release, and installs it from its files only: the programs of the image, the rendered manifests or the chart,
// and the plugin that krew installs. It runs the commands of the documents.
func TestRelease(t *testing.T) {
	c := framework.Another(t, "--only-kube")
	r := newRelease(t, c.Root)
	if out := r.run(t, c.Root, nil, r.tool("release"), "verify", r.dir, filepath.Join(r.work, "cosign.pub")); !strings.Contains(out, " with changes\n") {
		t.Errorf("the verification does not report a snapshot:\n%s", out)
	}
	r.refused(t)
	r.image = strings.TrimSpace(r.run(t, c.Root, nil, r.tool("release"), "load", "linux/"+runtime.GOARCH, filepath.Join(r.work, "image"), filepath.Join(r.dir, "nsinit-image.tar")))
	r.run(t, r.work, nil, "tar", "--extract", "--file="+filepath.Join(r.dir, "nsinit-manifests.tar.gz"))
	if t.Run("manifests", func(t *testing.T) { r.installManifests(t, r.newInstallation(t, c)) }) {
		c.Renew(t, "--only-kube")
		t.Run("chart", func(t *testing.T) { r.installChart(t, r.newInstallation(t, c)) })
	}
}

// newInstallation prepares an installation on a control plane: a node that has the image of the release.
func (r *release) newInstallation(t *testing.T, c *framework.Cluster) *installation {
	t.Helper()
	i := &installation{Cluster: c}
	i.provisions(t)
	i.node = i.StartNode(t, map[string]string{r.image: filepath.Join(r.work, "image")})
	i.Balance(t, func() []string { return i.node.Addresses("nsinit-apiserver") })
	krew := filepath.Join(r.work, "krew")
	i.words = map[string]string{
		"linux-amd64":        "linux-" + runtime.GOARCH,
		"kubectl krew":       "KREW_NO_UPGRADE_CHECK=1 KREW_ROOT=" + krew + " " + r.tool("krew"),
		"kubectl nsinit":     filepath.Join(krew, "bin", "kubectl-nsinit"),
		"artifacts/examples": filepath.Join(r.work, "artifacts", "examples"),
	}
	return i
}

// shell runs commands in the folder of the release, and returns their output.
func (r *release) shell(t *testing.T, i *installation, commands string) string {
	t.Helper()
	out, err := i.Shell(t, "cd "+r.dir+"\n"+commands, i.words)
	if err != nil {
		t.Fatalf("%s\n%v\n%s", commands, err, out)
	}
	t.Logf("\n%s\n%s", commands, out)
	return out
}

func (r *release) installManifests(t *testing.T, i *installation) {
	t.Helper()
	i.words["-f install-embedded.yaml"] = "-k " + i.Rendered(t, filepath.Join(r.dir, "install-embedded.yaml"))
	r.shell(t, i, i.Documented(t, framework.ReleaseGuide, "Verify a release")[0])
	// The index of krew expects this name.
	r.shell(t, i, "cp krew-nsinit.yaml "+r.work+"/nsinit.yaml && "+r.tool("validate-krew-manifest")+" -skip-install -manifest="+r.work+"/nsinit.yaml")
	r.shell(t, i, i.Documented(t, framework.ReleaseGuide, "Install the plugin with krew")[0])
	r.quickstart(t, i)
	r.shell(t, i, i.Documented(t, framework.InstallGuide, "Install a release")[0])
	if out := r.shell(t, i, "kubectl nsinit version"); strings.Count(out, releaseVersion) != 2 {
		t.Errorf("the versions are\n%s\nwant %s of the plugin and of nsinit-apiserver", out, releaseVersion)
	}
	i.work(t)
}

// quickstart runs the commands of docs/quickstart.md that install the release, as on kind and on a cluster that pulls from a registry. The
// release is built already, and kind does not run here: this machine reads the archive that kind would import.
func (r *release) quickstart(t *testing.T, i *installation) {
	t.Helper()
	chart, _ := r.serveChart(t)
	mirror := strings.TrimSuffix(strings.TrimPrefix(chart, "oci://"), "charts/nsinit") + "team/nsinit"
	words := maps.Clone(i.words)
	maps.Copy(words, map[string]string{
		"kind create cluster":                       "true",
		"make release VERSION=v0.1.0 UNSIGNED=true": "true",
		"kind load image-archive":                   r.tool("release") + " load linux/" + runtime.GOARCH + " " + t.TempDir(),
		"crane push":                                r.tool("crane") + " push",
		"registry.example.com/team/nsinit":          mirror,
		"_output/image":                             filepath.Join(r.work, "layout"),
		"_output/release/":                          r.dir + "/",
		"-f _output/release/install-embedded.yaml":  i.words["-f install-embedded.yaml"],
	})
	run := func(heading string) string {
		t.Helper()
		commands := i.Documented(t, framework.Quickstart, heading)[0]
		out, err := i.Shell(t, commands, words)
		if err != nil {
			t.Fatalf("%s\n%v\n%s", commands, err, out)
		}
		t.Logf("\n%s\n%s", commands, out)
		return out
	}
	if out := run("On kind"); !strings.Contains(out, r.image+"\n") || !strings.Contains(out, "no former installation was found") {
		t.Errorf("on kind:\n%s", out)
	}
	words["kubectl nsinit check --pre"] = "(kubectl nsinit check --pre || test $? = 2)"
	if out := run("On your cluster"); !strings.Contains(out, "nsinit is installed already") {
		t.Errorf("on a cluster:\n%s", out)
	}
	// The node runs only the image of this name, so the manifest refers to it. The registry has it for this platform, too.
	_, digest, _ := strings.Cut(r.image, "@")
	if config := r.run(t, r.dir, nil, r.tool("crane"), "config", "--platform=linux/"+runtime.GOARCH, mirror+"@"+digest); !strings.Contains(config, `"architecture":"`+runtime.GOARCH+`"`) {
		t.Errorf("the image in the registry has the configuration %s", config)
	}

	r.shell(t, i, "kubectl create namespace shop && kubectl wait --for=condition=Initializing namespace/shop")
	i.WaitCurrent(t, "shop", "approval.example.com")
	r.shell(t, i, "kubectl nsinit done shop approval.example.com")
	i.WaitReady(t, "shop")
	i.DeleteNamespace(t, "shop")
	i.unregister(t, "20-approval", "approval.example.com")
}

// installChart installs the chart from a registry into another namespace with Helm, changes values, and uninstalls it.
func (r *release) installChart(t *testing.T, i *installation) {
	t.Helper()
	const namespace = "platform"
	i.PutOnLoopback(t)
	i.Build(t, "test/gitops", "helm", "helm.sh/helm/v4/cmd/helm")
	repository, version := r.serveChart(t)
	if out := r.shell(t, i, "helm pull "+repository+" --version "+version+" --plain-http --destination="+r.work+" && cmp "+r.work+"/nsinit-"+version+".tgz nsinit-"+version+".tgz"); !strings.Contains(out, "Digest: sha256:") {
		t.Errorf("helm pull: %s", out)
	}
	i.words["oci://ghcr.io/nsinit/charts/nsinit"], i.words["VERSION"], i.words["nsinit-system"] = repository+" --plain-http", version, namespace

	// An installation that fails, and is uninstalled without further steps, leaves namespaces as they are.
	r.shell(t, i, "helm install nsinit "+repository+" --plain-http --version "+version+" --namespace "+namespace+" --create-namespace --set=image.digest=sha256:"+strings.Repeat("0", 64))
	i.harmless(t)
	r.shell(t, i, "helm uninstall nsinit --namespace "+namespace+" && kubectl delete namespace "+namespace)
	i.harmless(t)

	r.shell(t, i, i.Documented(t, framework.InstallGuide, "Install with Helm")[0])
	i.work(t)

	if _, err := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Initializers: framework.Initializers("slow.example.com"),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tenant := i.Tenant(t)
	waiting := i.planned(t, "slow.example.com")
	i.WaitCurrent(t, waiting, "slow.example.com")
	i.closedTo(t, tenant, waiting)

	i.words["--reset-then-reuse-values"] = "--reset-then-reuse-values --set=podLabels.team=platform --set=policyPopulation.replicas=1"
	r.shell(t, i, i.Documented(t, framework.UpgradeGuide, "Upgrade with Helm")[0])
	for app, replicas := range map[string]int{"nsinit-apiserver": 1, "nsinit-controller-manager": 2, "policy-population": 1} {
		pods, err := i.Core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "team=platform,app.kubernetes.io/name=" + app})
		if err != nil || len(pods.Items) != replicas {
			t.Errorf("%d pods of %s have the new label, want %d: %v", len(pods.Items), app, replicas, err)
		}
	}
	i.closedTo(t, tenant, waiting)
	i.RemoveFirst(t, waiting)
	i.WaitReady(t, waiting)
	framework.WaitWrite(t, tenant, waiting)

	// The step before the last one is for overlays.
	for n, step := range i.Documented(t, framework.UninstallGuide, "Uninstall") {
		if n != 4 {
			r.shell(t, i, step)
		}
	}
	i.DeleteNamespace(t, waiting)
	i.gone(t, waiting, namespace)
}

// serveChart serves the chart of the release in a registry until the test ends. It returns the address and the version of the chart.
func (r *release) serveChart(t *testing.T) (repository, version string) {
	t.Helper()
	server := exec.CommandContext(t.Context(), r.tool("release"), "serve", r.dir)
	server.Stderr = os.Stderr
	_, err := server.StdinPipe() // it serves until its input ends
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Wait() }) // the context has ended it
	if _, err := fmt.Fscanln(out, &repository, &version); err != nil {
		t.Fatal(err)
	}
	return repository, version
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
