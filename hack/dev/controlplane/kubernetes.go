/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// kubernetesProgram is a program to be built from a module that pins a version of Kubernetes.
type kubernetesProgram struct {
	name, pkg string
	source    kubernetesSource
	// path is the program in the folder of programs, and stamp the file beside it that holds the entry.
	path, stamp string
	// entry is the name of the program in the cache. It depends on everything that determines the program.
	entry string
}

// kubernetesSource is a module that pins a version of Kubernetes.
type kubernetesSource struct{ dir, version string }

// buildFlags are the flags of go build.
func (s kubernetesSource) buildFlags() []string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(s.version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const variables = "k8s.io/component-base/version"
	return []string{"-trimpath", "-buildvcs=false", fmt.Sprintf("-ldflags=-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
		variables, s.version, major, minor)}
}

// command returns a command of go in the module. Its result depends on the environment as little as possible, so that
// it is the same for make and for a shell.
func (s kubernetesSource) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = s.dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off")
	return command
}

// inputs returns what determines the programs of the module: go.mod and go.sum, the version and the target of go, and
// the flags.
func (s kubernetesSource) inputs(ctx context.Context) (string, error) {
	goMod, err := os.ReadFile(filepath.Join(s.dir, "go.mod"))
	if err != nil {
		return "", err
	}
	goSum, err := os.ReadFile(filepath.Join(s.dir, "go.sum"))
	if err != nil {
		return "", err
	}
	environment, err := s.command(ctx, "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140").Output()
	if err != nil {
		return "", fmt.Errorf("cannot read the environment of go: %w", err)
	}
	return fmt.Sprintf("%q %q %q %q", goMod, goSum, environment, s.buildFlags()), nil
}

// buildKubernetes installs the programs of Kubernetes that are missing or were built from something else. It builds those
// that the cache does not have.
func (c *Cluster) buildKubernetes(ctx context.Context) error {
	programs, err := c.kubernetesPrograms(ctx)
	if err != nil {
		return err
	}
	cache, unusable := openProgramCache()
	if unusable != nil {
		cache = programCache{dir: filepath.Join(c.BinDir, ".kubernetes")}
	}
	if programs, err = cache.install(programs); err != nil || len(programs) == 0 {
		return err
	}
	if unusable != nil {
		c.say("other checkouts cannot use the programs of Kubernetes, which are kept in %s: %s", cache.dir, unusable)
	}
	if err := os.MkdirAll(cache.dir, 0o755); err != nil {
		return err
	}
	unlock, err := c.lock(ctx, cache.dir)
	if err != nil {
		return err
	}
	defer unlock()
	if programs, err = cache.install(programs); err != nil { // another checkout may have built them meanwhile
		return err
	}
	groups := map[kubernetesSource][]kubernetesProgram{}
	for _, p := range programs {
		groups[p.source] = append(groups[p.source], p)
	}
	for source, group := range groups {
		if err := c.buildPrograms(ctx, cache, source, group); err != nil {
			return err
		}
	}
	if programs, err = cache.install(programs); err != nil {
		return err
	}
	if len(programs) > 0 {
		return fmt.Errorf("cannot install %s: another command removes files in %s", programs[0].name, cache.dir)
	}
	return cache.prune()
}

// kubernetesPrograms returns the programs of Kubernetes.
func (c *Cluster) kubernetesPrograms(ctx context.Context) ([]kubernetesProgram, error) {
	// The two versions can be the same: then the module is read once.
	byVersion := map[string]map[string]string{newest: {}, c.Kubernetes: {}}
	maps.Copy(byVersion[newest], commonPrograms())
	maps.Copy(byVersion[c.Kubernetes], versionedPrograms())
	var all []kubernetesProgram
	for version, programs := range byVersion {
		source := kubernetesSource{dir: c.kubernetesModule(version)}
		goMod, err := os.ReadFile(filepath.Join(source.dir, "go.mod"))
		if err != nil {
			return nil, err
		}
		if source.version, err = kubernetesVersion(string(goMod)); err != nil {
			return nil, err
		}
		inputs, err := source.inputs(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(programs)) {
			path := c.program(name)
			all = append(all, kubernetesProgram{
				name: name, pkg: programs[name], source: source,
				path: path, stamp: filepath.Join(filepath.Dir(path), "."+name+".built"),
				entry: fmt.Sprintf("%s-%s-%.8x", name, source.version, sha256.Sum256([]byte(programs[name]+" "+inputs))),
			})
		}
	}
	return all, nil
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

// buildPrograms builds programs of a module into the cache. One go build compiles what one program needs while it links
// another one.
func (c *Cluster) buildPrograms(ctx context.Context, cache programCache, source kubernetesSource, programs []kubernetesProgram) error {
	dir, err := os.MkdirTemp(cache.dir, unfinished)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var names []string
	args := append([]string{"build", "-v", "-o", dir + string(filepath.Separator)}, source.buildFlags()...)
	for _, p := range programs {
		names, args = append(names, p.name), append(args, p.pkg)
	}
	c.say("building %s of Kubernetes %s, which takes minutes the first time", strings.Join(names, ", "), source.version)
	command, output := source.command(ctx, args...), &buildOutput{}
	command.Stdout, command.Stderr = output, output
	err = c.runShown(ctx, command, func() string {
		built, _ := os.ReadDir(dir)
		return fmt.Sprintf("Kubernetes %s (%d of %d programs, %d packages)", source.version, len(built), len(programs), output.count())
	})
	if err != nil {
		return fmt.Errorf("cannot build %s of Kubernetes %s: %w\n%s", strings.Join(names, ", "), source.version, err, output.errors())
	}
	for _, p := range programs {
		if err := cache.add(filepath.Join(dir, executable(p.pkg)), p.entry); err != nil {
			return err
		}
	}
	return nil
}

// executable returns the name that go build gives to a program: the last element of the path of its package that is no
// major version.
func executable(pkg string) string {
	if base := path.Base(pkg); !regexp.MustCompile(`^v[0-9]+$`).MatchString(base) {
		return base
	}
	return path.Base(path.Dir(pkg))
}

// buildOutput takes what go build -v prints: a line for each package, for each module that it downloads, and errors.
type buildOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *buildOutput) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

// split returns the number of packages, and the lines of errors.
func (o *buildOutput) split() (packages int, errors []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range strings.Lines(o.text.String()) {
		switch {
		case strings.HasPrefix(line, "go: downloading "):
		case strings.ContainsAny(line, " \t"):
			errors = append(errors, line)
		default:
			packages++
		}
	}
	return packages, errors
}

func (o *buildOutput) count() int {
	packages, _ := o.split()
	return packages
}

func (o *buildOutput) errors() string {
	_, errors := o.split()
	return strings.Join(errors, "")
}
