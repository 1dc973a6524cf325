/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// AuditEvent has those fields of an event of the audit log that tests read.
type AuditEvent struct {
	Verb string
	User struct{ Username string }
	// ImpersonatedUser is who User was in the request, and ImpersonationConstraint the verb that allows only some requests as that user.
	ImpersonatedUser       struct{ Username string }
	AuthenticationMetadata struct{ ImpersonationConstraint string }
	ObjectRef              struct{ Resource, Subresource, Namespace, Name string }

	RequestReceivedTimestamp time.Time
	ResponseStatus           struct{ Code int }
	Annotations              map[string]string
	// RequestObject is the body of writes of the status of namespaces.
	RequestObject json.RawMessage
}

// AuditSince returns the events of the audit log after a position, and the position after them. 0 is the beginning.
func (c *Cluster) AuditSince(t *testing.T, from int64) ([]AuditEvent, int64) {
	t.Helper()
	file, err := os.Open(filepath.Join(c.Dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1] // kube-apiserver may be writing the last line
	var events []AuditEvent
	for line := range bytes.Lines(data) {
		var event AuditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
	return events, from + int64(len(data))
}
