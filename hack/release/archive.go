/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
)

// archive returns a tar archive of the given files and folders in a folder, or of all. It depends only on their content, and every file
// belongs to root.
func (r *release) archive(dir string, names ...string) ([]byte, error) {
	if len(names) == 0 {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
	}
	var out, messages bytes.Buffer
	command := exec.Command("tar", append([]string{"--create", "--sort=name", fmt.Sprintf("--mtime=@%d", r.time.Unix()), "--owner=0", "--group=0",
		"--numeric-owner", "--mode=u+rwX,go+rX,go-w", "--directory=" + dir, "--"}, names...)...)
	command.Stdout, command.Stderr = &out, &messages
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("tar: %w: %s", err, messages.String())
	}
	return out.Bytes(), nil
}

// compressed is archive, with gzip.
func (r *release) compressed(dir string, names ...string) ([]byte, error) {
	data, err := r.archive(dir, names...)
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
	err = writer.Close()
	return buffer.Bytes(), err
}
