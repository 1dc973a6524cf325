/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// commonPrograms are built from the module of the newest version, for every version of Kubernetes.
func commonPrograms() map[string]string {
	return map[string]string{
		"kubectl":          "k8s.io/kubernetes/cmd/kubectl",
		"etcd":             "go.etcd.io/etcd/server/v3",
		"sample-apiserver": "k8s.io/sample-apiserver",
	}
}

// versionedPrograms are built from the module of the version of Kubernetes.
func versionedPrograms() map[string]string {
	return map[string]string{
		"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
		"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
	}
}

// Scheduler is a program of Kubernetes that only the fault campaign runs, in the newest version.
const Scheduler = "kube-scheduler"

// kubernetesBuild is programs that are built from a module that pins a version of Kubernetes.
type kubernetesBuild struct {
	dir, version string
	// packages are those of the programs, by name.
	packages map[string]string
	// entry is the folder of the programs in the cache. Its name depends on everything that determines them: go.mod and go.sum, the
	// version and the target of go, the flags, and the packages.
	entry string
}

// command returns a command of go in the module. Its result depends on the environment as little as possible, so that
// it is the same for make and for a shell.
func (b kubernetesBuild) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = b.dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off")
	return command
}

// flags are the flags of go build.
func (b kubernetesBuild) flags() []string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(b.version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const variables = "k8s.io/component-base/version"
	return []string{"-trimpath", "-buildvcs=false", fmt.Sprintf("-ldflags=-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
		variables, b.version, major, minor)}
}

// buildKubernetes builds the programs of Kubernetes.
func (c *Cluster) buildKubernetes(ctx context.Context) error {
	// The two versions can be the same.
	byVersion := map[string]map[string]string{newest: {}, c.Kubernetes: {}}
	maps.Copy(byVersion[newest], commonPrograms())
	maps.Copy(byVersion[c.Kubernetes], versionedPrograms())
	return c.installPrograms(ctx, byVersion)
}

// installPrograms builds the programs of versions of Kubernetes that the cache does not have, and links to all of them. The cache is
// shared by all checkouts of a user.
func (c *Cluster) installPrograms(ctx context.Context, byVersion map[string]map[string]string) error {
	cache, unusable := programCache()
	if unusable != nil {
		cache = filepath.Join(c.BinDir, ".kubernetes")
	}
	builds, err := c.kubernetesBuilds(ctx, cache, byVersion)
	if err != nil {
		return err
	}
	for _, b := range builds {
		if !exists(b.entry) {
			if unusable != nil {
				c.say("other checkouts cannot use the programs of Kubernetes, which are kept in %s: %s", cache, unusable)
			}
			if err := c.buildPrograms(ctx, cache, b); err != nil {
				return err
			}
		}
		now := time.Now()
		_ = os.Chtimes(b.entry, now, now) // prune keeps it
		for name, pkg := range b.packages {
			program := filepath.Join(b.entry, path.Base(strings.TrimSuffix(pkg, "/v3"))) // go build omits the major version
			if err := link(program, c.program(name)); err != nil {
				return fmt.Errorf("cannot install %s: %w", name, err)
			}
		}
	}
	return nil
}

// programCache returns the folder that keeps the programs of Kubernetes of the user.
func programCache() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "nsinit", "kubernetes")
	return dir, errors.Join(os.MkdirAll(dir, 0o755), unix.Access(dir, unix.W_OK))
}

// kubernetesBuilds returns what has to be built from the module of each version.
func (c *Cluster) kubernetesBuilds(ctx context.Context, cache string, byVersion map[string]map[string]string) ([]kubernetesBuild, error) {
	var builds []kubernetesBuild
	for version, packages := range byVersion {
		b := kubernetesBuild{dir: c.kubernetesModule(version), packages: packages}
		goMod, modErr := os.ReadFile(filepath.Join(b.dir, "go.mod"))
		goSum, sumErr := os.ReadFile(filepath.Join(b.dir, "go.sum"))
		environment, goErr := b.command(ctx, "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140").Output()
		var versionErr error
		b.version, versionErr = kubernetesVersion(string(goMod))
		if err := errors.Join(modErr, sumErr, goErr, versionErr); err != nil {
			return nil, fmt.Errorf("cannot read the versions in %s: %w", b.dir, err)
		}
		inputs := fmt.Appendf(nil, "%q %q %q %q %q", goMod, goSum, environment, b.flags(), packages)
		b.entry = filepath.Join(cache, fmt.Sprintf("%s-%.8x", b.version, sha256.Sum256(inputs)))
		builds = append(builds, b)
	}
	return builds, nil
}

// kubernetesVersion reads the version of Kubernetes from go.mod.
func kubernetesVersion(goMod string) (string, error) {
	for line := range strings.SplitSeq(goMod, "\n") {
		if fields := strings.Fields(strings.TrimPrefix(line, "require ")); len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" && len(strings.Split(fields[1], ".")) == 3 {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("go.mod requires no version of k8s.io/kubernetes")
}

// unfinished begins the names of the folders in which programs are built.
const unfinished = "building-"

// buildPrograms adds programs to the cache, unless another checkout has done so meanwhile. One go build compiles what one program
// needs while it links another one.
func (c *Cluster) buildPrograms(ctx context.Context, cache string, b kubernetesBuild) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	unlock, err := c.lock(ctx, cache)
	if err != nil {
		return err
	}
	defer unlock()
	if exists(b.entry) {
		return nil
	}
	dir, err := os.MkdirTemp(cache, unfinished)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	log, err := os.Create(filepath.Join(dir, "build.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	names := strings.Join(slices.Sorted(maps.Keys(b.packages)), ", ")
	c.say("building %s of Kubernetes %s, which takes minutes the first time", names, b.version)
	args := slices.Concat([]string{"build", "-v", "-o", dir + string(filepath.Separator)}, b.flags(), slices.Sorted(maps.Values(b.packages)))
	command := b.command(ctx, args...)
	command.Stdout, command.Stderr = log, log
	err = c.runShown(ctx, command, func() string {
		packages, _ := readOutput(log.Name())
		built, _ := os.ReadDir(dir) // with the log
		return fmt.Sprintf("Kubernetes %s (%d of %d programs, %d packages)", b.version, len(built)-1, len(b.packages), packages)
	})
	if err != nil {
		_, failures := readOutput(log.Name())
		return fmt.Errorf("cannot build %s of Kubernetes %s: %w\n%s", names, b.version, err, strings.Join(failures, ""))
	}
	unix.Sync() // after a crash of the machine, an entry is complete
	return errors.Join(os.Rename(dir, b.entry), prune(cache))
}

// readOutput reads what go build -v has printed: a line for each package, for each module that it downloads, and errors.
func readOutput(file string) (packages int, failures []string) {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		switch {
		case strings.HasPrefix(line, "go: downloading "):
		case strings.ContainsAny(line, " \t"):
			failures = append(failures, line)
		default:
			packages++
		}
	}
	return packages, failures
}

// link replaces a file by a symbolic link.
func link(target, file string) error {
	if current, _ := os.Readlink(file); current == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	_ = os.Remove(file + ".new")
	return errors.Join(os.Symlink(target, file+".new"), os.Rename(file+".new", file))
}

// unusedFor is how long an entry of the cache is kept that no checkout uses.
const unusedFor = 30 * 24 * time.Hour

// prune removes what builds that were killed have left, and the entries that no checkout has used for long. The
// caller holds the lock.
func prune(cache string) error {
	entries, err := os.ReadDir(cache)
	for _, entry := range entries {
		info, statErr := entry.Info()
		if statErr != nil || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if strings.HasPrefix(entry.Name(), unfinished) || time.Since(info.ModTime()) > unusedFor {
			err = errors.Join(err, os.RemoveAll(filepath.Join(cache, entry.Name())))
		}
	}
	return err
}
