/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package embeddedetcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// maxLastWords is how much of the output of a process is kept, in bytes.
const maxLastWords = 16 << 10

// lastWords forwards the output of a process, and keeps the end of it.
type lastWords struct {
	to io.Writer

	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (w *lastWords) Write(data []byte) (int, error) {
	w.mu.Lock()
	w.kept = append(w.kept, data...)
	w.kept = slices.Clone(w.kept[max(0, len(w.kept)-maxLastWords):])
	w.mu.Unlock()
	return w.to.Write(data)
}

// explain returns why the process ended. The same cause has the same message, because the message
// becomes a condition of namespaces.
func (w *lastWords) explain(dir string, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := string(w.kept)
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if strings.Contains(kept, full.Error()) {
			return fmt.Errorf("the volume of etcd is full (%s): free space on it or enlarge it, and etcd restarts: %w", dir, full)
		}
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	if last := lastError(kept); last != "" {
		return fmt.Errorf("etcd exited (%w): %s", err, last)
	}
	return fmt.Errorf("etcd exited: %w", err)
}

// lastError returns the last error in what etcd logged, or "".
func lastError(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, line := range slices.Backward(lines) {
		var entry struct{ Level, Msg, Error string }
		switch {
		case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "):
			return line
		case strings.HasPrefix(line, "E"): // klog: the text before the bracket varies
			_, message, _ := strings.Cut(line, "] ")
			return message
		case json.Unmarshal([]byte(line), &entry) != nil || entry.Level == "warn" || entry.Level == "info":
		case entry.Error != "":
			return entry.Msg + ": " + entry.Error
		default:
			return entry.Msg
		}
	}
	return ""
}
