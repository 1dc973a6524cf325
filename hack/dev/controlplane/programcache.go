/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// unfinished begins the names of the folders in which programs are built.
	unfinished = "building-"
	// unusedFor is how long an entry is kept that no checkout uses.
	unusedFor = 30 * 24 * time.Hour
)

// programCache keeps the programs of Kubernetes for every checkout of a user. An entry is a complete program. The folder
// is locked while entries are added or removed, but not while they are used.
type programCache struct{ dir string }

// openProgramCache returns the cache of the user. It returns an error if the user has none, or cannot write to it.
func openProgramCache() (programCache, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return programCache{}, err
	}
	cache := programCache{dir: filepath.Join(base, "nsinit", "kubernetes")}
	if err := os.MkdirAll(cache.dir, 0o755); err != nil {
		return programCache{}, err
	}
	probe, err := os.CreateTemp(cache.dir, ".write")
	if err != nil {
		return programCache{}, err
	}
	return cache, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func (p programCache) path(entry string) string { return filepath.Join(p.dir, entry) }

// add makes a program that was just built an entry. The program is on disk before it has the name of the entry.
func (p programCache) add(program, entry string) error {
	file, err := os.Open(program)
	if err != nil {
		return err
	}
	// A write to one of the links of an entry would change all of them.
	if err := errors.Join(file.Chmod(0o555), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(program, p.path(entry))
}

// install puts programs into the folder of programs, if they are not there and the cache has them. It returns those
// that the cache does not have.
func (p programCache) install(programs []kubernetesProgram) (missing []kubernetesProgram, err error) {
	for _, program := range programs {
		entry := p.path(program.entry)
		now := time.Now()
		_ = os.Chtimes(entry, now, now) // prune keeps it
		if built, _ := os.ReadFile(program.stamp); string(built) == program.entry && exists(program.path) {
			continue
		}
		if info, err := os.Stat(entry); err != nil || info.Size() == 0 {
			missing = append(missing, program)
			continue
		}
		if err := os.MkdirAll(filepath.Dir(program.path), 0o755); err != nil {
			return nil, err
		}
		err := place(entry, program.path)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			missing = append(missing, program)
			continue
		}
		if err := errors.Join(err, os.WriteFile(program.stamp, []byte(program.entry), 0o600)); err != nil {
			return nil, fmt.Errorf("cannot install %s: %w", program.name, err)
		}
	}
	return missing, nil
}

// place replaces a file by a hard link of another one, or by a copy if they are on different file systems.
func place(from, to string) error {
	temporary := to + ".new"
	_ = os.Remove(temporary)
	defer os.Remove(temporary) // a rename to another link of the same file does nothing
	if err := os.Link(from, temporary); errors.Is(err, fs.ErrNotExist) {
		return err
	} else if err != nil {
		if err := copyFile(from, temporary); err != nil {
			return err
		}
	}
	return os.Rename(temporary, to)
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // a program
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// prune removes what builds that were killed have left, and the entries that no checkout has used for long. The
// caller holds the lock.
func (p programCache) prune() error {
	entries, err := os.ReadDir(p.dir)
	for _, entry := range entries {
		info, statErr := entry.Info()
		if statErr != nil || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if strings.HasPrefix(entry.Name(), unfinished) || time.Since(info.ModTime()) > unusedFor {
			err = errors.Join(err, os.RemoveAll(p.path(entry.Name())))
		}
	}
	return err
}
