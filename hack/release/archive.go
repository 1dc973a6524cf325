/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// file is a file in an archive.
type file struct {
	// name is a path with slashes.
	name       string
	data       []byte
	executable bool
}

// files returns the files of a folder.
func files(dir string) ([]file, error) {
	var all []file
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := fs.ReadFile(root, name)
		all = append(all, file{name: name, data: data, executable: info.Mode()&0o111 != 0})
		return err
	})
	return all, err
}

// archive returns a tar archive that depends only on its arguments. Every file belongs to root.
func archive(all []file, at time.Time) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	done := map[string]bool{".": true}
	var folders func(name string) error
	folders = func(name string) error {
		if done[name] {
			return nil
		}
		done[name] = true
		if err := folders(path.Dir(name)); err != nil {
			return err
		}
		return writer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: at, Format: tar.FormatPAX})
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.name, b.name) })
	for _, f := range all {
		if err := folders(path.Dir(f.name)); err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if f.executable {
			mode = 0o755
		}
		if err := writer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: mode, ModTime: at, Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
		if _, err := writer.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// compressed is archive, with gzip.
func compressed(all []file, at time.Time) ([]byte, error) {
	data, err := archive(all, at)
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	writer, err := gzip.NewWriterLevel(&buffer, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(data); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}
