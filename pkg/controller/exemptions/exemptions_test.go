/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package exemptions

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/nsinit/nsinit/pkg/installation"
)

func configMap(names string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: installation.Exemptions}, Data: map[string]string{installation.KeyNamespaces: names}}
}

// TestFollows: the list is what the ConfigMap says now, and unknown while there is none.
func TestFollows(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	logged := func(text string) bool {
		return strings.Contains(logger.GetSink().(ktesting.Underlier).GetBuffer().String(), text)
	}
	client := fake.NewClientset()
	configMaps := client.CoreV1().ConfigMaps("system")
	l := New(client, "system")
	changes := make(chan struct{}, 10)
	l.OnChange(func() { changes <- struct{}{} })
	if _, known := l.Has("a", ""); known {
		t.Error("known before anything was read")
	}
	go func() {
		if err := l.Run(klog.NewContext(ctx, logger)); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "the log says that the list is missing", func() bool { return logged("The list of exemptions does not exist") })
	eventually(t, "it is notified that the list is missing", func() bool { return len(changes) == 1 })
	<-changes
	if _, known := l.Has("a", ""); known || !l.HasSynced() {
		t.Errorf("known: %t, synced: %t", known, l.HasSynced())
	}

	if _, err := configMaps.Create(ctx, configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-changes
	says(t, l, "a", true)
	says(t, l, "b", false)
	if _, err := configMaps.Update(ctx, configMap("b"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-changes
	says(t, l, "a", false)
	says(t, l, "b", true)
	malformed := configMap("b\nTwo Names")
	malformed.Data["user"] = "eve"
	if _, err := configMaps.Update(ctx, malformed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-changes
	says(t, l, "b", true)
	for _, line := range []string{`line 2 of namespaces, \"Two Names\": `, `key \"user\" is unknown`} {
		eventually(t, "the log has the malformed "+line, func() bool { return logged(line) })
	}
	if err := configMaps.Delete(ctx, installation.Exemptions, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the list is unknown", func() bool { _, known := l.Has("b", ""); return !known })
	eventually(t, "it is notified that the list was deleted", func() bool { return len(changes) == 1 })
}

func says(t *testing.T, l *List, namespace string, want bool) {
	t.Helper()
	if exempt, known := l.Has(namespace, ""); !known || exempt != want {
		t.Errorf("%s: exempt %t, known %t; want %t", namespace, exempt, known, want)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !holds() {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("it never came true that %s", what)
		}
	}
}
