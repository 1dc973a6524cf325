/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package history

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// line is one line of a stored history: exactly one of its fields is set.
type line struct {
	Operation *Operation `json:"operation,omitempty"`
	Event     *Event     `json:"event,omitempty"`
	Mark      *Mark      `json:"mark,omitempty"`
}

// maxLine is the length of the longest line that is read.
const maxLine = 16 << 20

// Write writes a history as JSON lines.
func (h *History) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	for i := range h.Marks {
		if err := encoder.Encode(line{Mark: &h.Marks[i]}); err != nil {
			return err
		}
	}
	for i := range h.Operations {
		if err := encoder.Encode(line{Operation: &h.Operations[i]}); err != nil {
			return err
		}
	}
	for i := range h.Events {
		if err := encoder.Encode(line{Event: &h.Events[i]}); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what Write wrote.
func Read(r io.Reader) (*History, error) {
	h := &History{}
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLine)
	for number := 1; scanner.Scan(); number++ {
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		switch {
		case l.Operation != nil:
			h.Operations = append(h.Operations, *l.Operation)
		case l.Event != nil:
			h.Events = append(h.Events, *l.Event)
		case l.Mark != nil:
			h.Marks = append(h.Marks, *l.Mark)
		default:
			return nil, fmt.Errorf("line %d is neither an operation nor an event nor a mark", number)
		}
	}
	return h, scanner.Err()
}

// compressed ends the names of files that are compressed.
const compressed = ".gz"

// Save writes a history into a file atomically. It compresses the file if the name ends in .gz.
func (h *History) Save(path string) (err error) {
	file, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(file)
	if strings.HasSuffix(path, compressed) {
		zipped := gzip.NewWriter(buffer)
		err = errors.Join(h.Write(zipped), zipped.Close())
	} else {
		err = h.Write(buffer)
	}
	if err := errors.Join(err, buffer.Flush(), file.Close()); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// Load reads a file that Save wrote.
func Load(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var reader io.Reader = bufio.NewReader(file)
	if strings.HasSuffix(path, compressed) {
		if reader, err = gzip.NewReader(reader); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	h, err := Read(reader)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}
