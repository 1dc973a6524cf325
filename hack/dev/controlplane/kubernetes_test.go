/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeGo stands for go. It builds a program that consists of its package, half of it if the file broken exists, and adds
// a line to the file builds. Like go, it builds all of the programs before it fails.
const fakeGo = `#!/bin/sh
here=${0%/*}
[ "$1" = build ] || exec cat "$here/environment"
echo "$@" >>"$here/builds"
shift
packages=
while [ $# -gt 0 ]; do
  case $1 in
  -o) output=$2; shift ;;
  -*) ;;
  *) packages="$packages $1" ;;
  esac
  shift
done
echo "go: downloading k8s.io/api v0.37.2" >&2
for package in $packages; do
  echo "$package" >&2
  program=${package%/v3}
  printf '#!/bin/sh\necho ' >"$output${program##*/}"
  [ ! -e "$here/slow" ] || sleep 0.2
  [ ! -e "$here/broken" ] || { echo "no space left" >&2; exit 1; }
  echo "$package" >>"$output${program##*/}"
  chmod +x "$output${program##*/}"
done
`

// toolchain is a folder with a fake go.
type toolchain struct {
	t   *testing.T
	dir string
}

// newToolchain replaces go and the cache of this test.
func newToolchain(t *testing.T) toolchain {
	t.Helper()
	f := toolchain{t: t, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(f.dir, "go"), []byte(fakeGo), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	f.write("environment", "go1.26.8 linux amd64\n")
	t.Setenv("PATH", f.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(t.TempDir(), "cache"))
	return f
}

func (f toolchain) write(name, text string) {
	f.t.Helper()
	writeFile(f.t, filepath.Join(f.dir, name), text)
}

// builds returns the number of builds since the last call.
func (f toolchain) builds() int {
	f.t.Helper()
	path := filepath.Join(f.dir, "builds")
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	_ = os.Remove(path)
	return strings.Count(string(data), "\n")
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const pinned = "module x\n\nrequire k8s.io/kubernetes v1.37.2\n"

// checkout returns a control plane of a new checkout.
func checkout(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{Root: t.TempDir(), Kubernetes: newest, start: time.Now()}
	c.BinDir = filepath.Join(c.Root, "_output", "bin")
	c.pin(t, newest, pinned, "")
	return c
}

func (c *Cluster) pin(t *testing.T, version, goMod, goSum string) {
	t.Helper()
	writeFile(t, filepath.Join(c.kubernetesModule(version), "go.mod"), goMod)
	writeFile(t, filepath.Join(c.kubernetesModule(version), "go.sum"), goSum)
}

// buildAll builds the programs, and checks that they are complete.
func buildAll(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.BuildKubernetes(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, programs := range []map[string]string{commonPrograms(), versionedPrograms()} {
		for name, pkg := range programs {
			path := c.program(name)
			built, err := os.ReadFile(path)
			if err != nil || string(built) != "#!/bin/sh\necho "+pkg+"\n" {
				t.Errorf("%s: %q, %v", name, built, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s is no program: %v", name, err)
			}
			if exists(path + ".new") {
				t.Errorf("%s.new is left", path)
			}
		}
	}
}

// wantBuilds builds the programs of a checkout, and checks how often go build runs for this.
func (f toolchain) wantBuilds(c *Cluster, want int, why string) {
	f.t.Helper()
	buildAll(f.t, c)
	if got := f.builds(); got != want {
		f.t.Errorf("%d builds, want %d: %s", got, want, why)
	}
}

// entries returns the files in the cache.
func entries(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "nsinit", "kubernetes", "[^.]*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestKubernetesIsBuiltOnce: programs of Kubernetes are built once for all checkouts, until what determines them
// changes.
func TestKubernetesIsBuiltOnce(t *testing.T) {
	f := newToolchain(t)
	first, second := checkout(t), checkout(t)
	f.wantBuilds(first, 1, "nothing is built")
	f.wantBuilds(first, 0, "everything is built")
	f.wantBuilds(second, 0, "the cache has everything")
	writeFile(t, filepath.Join(first.Root, "go.mod"), "module github.com/nsinit/nsinit\n")
	f.wantBuilds(first, 0, "only nsinit's go.mod has changed")
	if err := os.RemoveAll(filepath.Join(first.Root, "_output")); err != nil {
		t.Fatal(err)
	}
	f.wantBuilds(first, 0, "make clean leaves the cache")

	first.pin(t, newest, pinned+"// another version\n", "")
	f.wantBuilds(first, 1, "its go.mod has changed")
	f.wantBuilds(second, 0, "another checkout has not changed")
	first.pin(t, newest, pinned, "another sum\n")
	f.wantBuilds(first, 1, "its go.sum has changed")
	first.pin(t, newest, pinned, "")
	f.wantBuilds(first, 0, "the cache has the former programs")
	f.write("environment", "go1.27.0 linux amd64\n")
	f.wantBuilds(first, 1, "go has changed")
}

// TestKubernetesVersions: another version has its own kube-apiserver and kube-controller-manager only.
func TestKubernetesVersions(t *testing.T) {
	f := newToolchain(t)
	older := checkout(t)
	older.Kubernetes = "v1.35"
	older.pin(t, "v1.35", "module x\n\nrequire k8s.io/kubernetes v1.35.6\n", "")
	f.wantBuilds(older, 2, "two modules")
	f.wantBuilds(checkout(t), 1, "kube-apiserver and kube-controller-manager are missing")
	f.wantBuilds(older, 0, "everything is built")
	if own, err := os.Stat(filepath.Join(older.BinDir, "v1.35")); err != nil || !own.IsDir() {
		t.Errorf("the programs of the version have no folder: %v", err)
	}
}

// TestKubernetesIsBuiltByOne: of several checkouts that need the programs at the same time, one builds them.
func TestKubernetesIsBuiltByOne(t *testing.T) {
	f := newToolchain(t)
	f.write("slow", "")
	var building sync.WaitGroup
	for range 4 {
		c := checkout(t)
		building.Go(func() { buildAll(t, c) })
	}
	building.Wait()
	if got := f.builds(); got != 1 {
		t.Errorf("%d builds", got)
	}
}

// TestUnfinishedBuild: what a build leaves that fails or is killed is not used, and removed by the next one.
func TestUnfinishedBuild(t *testing.T) {
	f := newToolchain(t)
	c := checkout(t)
	f.write("broken", "")
	err := c.BuildKubernetes(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no space left") || strings.Contains(err.Error(), "downloading") {
		t.Errorf("the error is %v", err)
	}
	if left := entries(t); len(left) > 0 || exists(c.program("etcd")) {
		t.Errorf("left: %q", left)
	}
	if err := os.Remove(filepath.Join(f.dir, "broken")); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "nsinit", "kubernetes", unfinished+"1")
	writeFile(t, filepath.Join(killed, "kubectl"), "half")
	f.builds()
	f.wantBuilds(c, 1, "the build was not finished")
	if exists(killed) {
		t.Error("what was left is not removed")
	}
}

// TestRemovedCache: programs whose cache was removed are built again.
func TestRemovedCache(t *testing.T) {
	f := newToolchain(t)
	c := checkout(t)
	f.wantBuilds(c, 1, "nothing is built")
	if err := os.RemoveAll(os.Getenv("XDG_CACHE_HOME")); err != nil {
		t.Fatal(err)
	}
	f.wantBuilds(c, 1, "the cache is gone")
}

// TestWithoutCache: a user who has no cache builds the programs in each checkout.
func TestWithoutCache(t *testing.T) {
	for name, set := range map[string]func(t *testing.T){
		"no home": func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", "")
			t.Setenv("HOME", "")
		},
		"not writable": func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "file")
			writeFile(t, file, "")
			t.Setenv("XDG_CACHE_HOME", file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newToolchain(t)
			set(t)
			c := checkout(t)
			f.wantBuilds(c, 1, "nothing is built")
			f.wantBuilds(c, 0, "everything is built")
			f.wantBuilds(checkout(t), 1, "there is no cache")
		})
	}
}

// TestUnusedPrograms: a build removes the programs that no checkout has used for long.
func TestUnusedPrograms(t *testing.T) {
	f := newToolchain(t)
	used, unused := checkout(t), checkout(t)
	f.wantBuilds(used, 1, "nothing is built")
	unused.pin(t, newest, pinned, "a sum\n")
	f.wantBuilds(unused, 1, "go.sum is another one")
	long := time.Now().Add(-2 * unusedFor)
	for _, entry := range entries(t) {
		if err := os.Chtimes(entry, long, long); err != nil {
			t.Fatal(err)
		}
	}
	f.wantBuilds(used, 0, "everything is built")
	last := checkout(t)
	last.pin(t, newest, pinned, "another sum\n")
	f.wantBuilds(last, 1, "go.sum is another one")
	f.wantBuilds(checkout(t), 0, "a checkout uses them")
	again := checkout(t)
	again.pin(t, newest, pinned, "a sum\n")
	f.wantBuilds(again, 1, "no checkout used them")
}

// TestRunningLink: two checkouts run links to the same file. Each recognizes its process only, also after the program was
// installed again.
func TestRunningLink(t *testing.T) {
	var processes []*Process
	for range 2 {
		dir := t.TempDir()
		p := script(t, dir, endless)
		p.Program = filepath.Join(dir, "sh")
		for range 2 {
			if err := link("/bin/sh", p.Program); err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			if !p.Current() {
				t.Errorf("%s is not current", p.Program)
			}
		}
		processes = append(processes, p)
	}
	one, other := processes[0], processes[1]
	if one.isOurs(other.Pid()) || other.isOurs(one.Pid()) {
		t.Error("a checkout recognizes the process of another one")
	}
	if err := one.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if !other.Current() {
		t.Error("the other process does not run any more")
	}
}
