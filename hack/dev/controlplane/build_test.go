/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKubernetesIsBuiltOnce: programs of Kubernetes are built again only if their go.mod changes, also from another
// checkout.
func TestKubernetesIsBuiltOnce(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // without go, so a build fails
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const pinned = "module x\n\nrequire k8s.io/kubernetes v1.37.1\n"
	bin := t.TempDir()
	checkout := func(goMod string) *Cluster {
		t.Helper()
		c := &Cluster{Root: t.TempDir(), BinDir: bin, Kubernetes: newest}
		write(filepath.Join(c.kubernetesModule(newest), "go.mod"), goMod)
		return c
	}
	built := func(c *Cluster) bool { return c.buildKubernetes(t.Context()) != nil }
	for _, programs := range []map[string]string{commonPrograms(), versionedPrograms()} {
		for name := range programs {
			if !built(checkout(pinned)) {
				t.Errorf("%s is missing, and not built", name)
			}
			write(filepath.Join(bin, name), "")
			write(filepath.Join(bin, "."+name+".go.mod"), pinned)
		}
	}
	c := checkout(pinned)
	if built(c) {
		t.Error("another checkout builds what exists")
	}
	write(filepath.Join(c.Root, "go.mod"), "module github.com/nsinit/nsinit\n")
	if built(c) {
		t.Error("it is built again after a change of nsinit's go.mod")
	}
	if !built(checkout(pinned + "// another version\n")) {
		t.Error("it is not built again after a change of its go.mod")
	}
}
