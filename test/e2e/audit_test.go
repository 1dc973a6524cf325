//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// auditEvent is what is read of an event of the audit log.
type auditEvent struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef struct{ Resource, Subresource, Namespace, Name string }

	ResponseStatus struct{ Code int }
	Annotations    map[string]string
}

// auditSince returns the events of the audit log from a position on, and the position after them.
func (c *cluster) auditSince(t *testing.T, from int64) ([]auditEvent, int64) {
	t.Helper()
	file, err := os.Open(filepath.Join(c.dir, "audit.log"))
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
	data = data[:bytes.LastIndexByte(data, '\n')+1] // the last line may be under way
	var events []auditEvent
	for line := range bytes.Lines(data) {
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
	return events, from + int64(len(data))
}

// TestAudit: the audit log of kube-apiserver tells that a gate was opened, once, by whom, and that a
// namespace was let go.
func TestAudit(t *testing.T) {
	c := connect(t)
	c.configure(t, v1alpha1.RegisteredInitializer{Name: "one.example.com", Finalizer: true})
	_, from := c.auditSince(t, 0)
	namespace := c.createNamespace(t, c.admin)
	c.waitCurrent(t, namespace.Name, "one.example.com")
	c.removeFirst(t, namespace.Name)
	c.waitReady(t, namespace.Name)
	if err := c.core.CoreV1().Namespaces().Delete(t.Context(), namespace.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.releaseParticipant(t, namespace.Name, "one.example.com")
	c.waitNoNamespace(t, namespace.Name)

	eventually(t, "the audit log tells of both", func(context.Context) error {
		events, _ := c.auditSince(t, from)
		told := map[string]int{}
		for _, event := range events {
			for key, value := range event.Annotations {
				if strings.HasPrefix(key, "nsinit-guard/") && strings.Contains(value, string(namespace.UID)) {
					told[key]++
					if want := "system:serviceaccount:nsinit-system:nsinit-controller-manager"; event.User.Username != want || event.ResponseStatus.Code != 200 {
						t.Errorf("%s by %s, answered with %d", key, event.User.Username, event.ResponseStatus.Code)
					}
				}
			}
		}
		if told["nsinit-guard/gate-opened"] != 1 || told["nsinit-guard/released"] != 1 {
			return errors.New(jsonOf(t, told))
		}
		return nil
	})
}
