/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/pkg/embeddedetcd"
	nsinitclient "github.com/nsinit/nsinit/pkg/generated/clientset/versioned/typed/nsinit/v1alpha1"
)

// storeFormer stores what a former version stored, as it was in its etcd: files in testdata, whose paths
// are the keys.
func storeFormer(t *testing.T, dir, version string) {
	t.Helper()
	etcd := filepath.Join(dir, "etcd")
	server, err := embeddedetcd.Start(t.Context(), etcd, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	endpoint, err := embeddedetcd.Endpoint(etcd)
	if err != nil {
		t.Fatal(err)
	}
	client := etcdClient(t, endpoint)
	stored := os.DirFS(filepath.Join("testdata", version))
	err = fs.WalkDir(stored, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		value, err := fs.ReadFile(stored, path)
		if err != nil {
			return err
		}
		_, err = client.Put(t.Context(), "/registry/nsinit.dev/nsinit.dev/"+path, string(value))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUpgrade: what a former version stored is read, in whatever state a namespace was, and goes on from
// there. The records in testdata/v0.0 lack what was added later: the starts of turns, and the identity of the
// storage. The record serial has the start of its only turn where it was stored while one initializer acted at a time.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	const quota, network = "quota.example.com", "network.example.com"
	dir := testserver.Dir(t)
	storeFormer(t, dir, "v0.0")
	server := testserver.StartIn(t, dir)
	client := server.Client(t, "admin").NsinitV1alpha1()

	configuration, err := client.NamespaceInitializerConfigurations().Get(t.Context(), "platform", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if names := initializerNames(configuration); !slices.Equal(names, []string{quota, network}) || *configuration.Initializers[0].FailurePolicy != v1alpha1.Ignore ||
		*configuration.Initializers[0].TimeoutSeconds != 600 || !configuration.Initializers[1].Finalizer || configuration.Status.Phase != v1alpha1.ConfigurationActive {
		t.Errorf("the configuration is %+v", configuration)
	}

	checkFormerTurns(t, client.NamespaceLifecycles(), quota, network)

	records := map[string]*v1alpha1.NamespaceLifecycle{}
	for name, want := range map[string]struct {
		phase      v1alpha1.LifecyclePhase
		current    string
		pending    int
		finalizers int
	}{
		"waiting": {v1alpha1.LifecycleInitializing, quota, 2, 2},
		"turn":    {v1alpha1.LifecycleInitializing, network, 1, 2},
		"open":    {v1alpha1.LifecycleActive, "", 0, 2},
		"failed":  {v1alpha1.LifecycleTerminating, "", 2, 1},
		"ending":  {v1alpha1.LifecycleTerminating, "", 0, 1},
	} {
		record, err := client.NamespaceLifecycles().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if record.Status.Phase != want.phase || currentOf(record) != want.current ||
			len(pendingNames(record)) != want.pending || len(record.Spec.Finalizers) != want.finalizers || record.Spec.NamespaceUID == "" {
			t.Errorf("%s: %+v %+v", name, record.Spec, record.Status)
		}
		server.Core.SetNamespace(testserver.Namespace(name, record.Spec.NamespaceUID, want.phase == v1alpha1.LifecycleInitializing))
		records[name] = record
	}
	if result := records["failed"].Spec.Initializers.Result; result == nil || result.Message != "no quota is left" || result.Code != 403 {
		t.Errorf("the result of the failed one is %+v", result)
	}
	progress := records["waiting"].Status.Initializers
	if want := progress[1].StartTime.Add(10 * time.Minute); !progress[1].Deadline.Time.Equal(want) {
		t.Errorf("the deadline is %v, want %v", progress[1].Deadline, want)
	}

	// They go on.
	for _, name := range []string{quota, network} {
		record, err := client.NamespaceLifecycles().Get(t.Context(), "waiting", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if currentOf(record) != name {
			t.Fatalf("it is the turn of %q, want %q", currentOf(record), name)
		}
		done := record.DeepCopy()
		done.Spec.Initializers.Pending = done.Spec.Initializers.Pending[1:]
		if err := testserver.Write(client.RESTClient(), "PUT", "namespacelifecycles", "initialize", record, done); err != nil {
			t.Fatal(err)
		}
	}
	record, err := client.NamespaceLifecycles().Get(t.Context(), "waiting", metav1.GetOptions{})
	if err != nil || record.Status.Phase != v1alpha1.LifecycleActive {
		t.Errorf("after both: %+v %v", record, err)
	}
	released := records["ending"].DeepCopy()
	released.Spec.Finalizers = nil
	if err := testserver.Write(client.RESTClient(), "PUT", "namespacelifecycles", "finalize", records["ending"], released); err != nil {
		t.Error(err)
	}
	if _, err := client.NamespaceLifecycles().Get(t.Context(), "ending", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without finalizers: %v", err)
	}

	// A new namespace gets its plan from the former configuration.
	server.Core.SetNamespace(testserver.Namespace("new", "new", true))
	created, err := client.NamespaceLifecycles().Create(t.Context(), testserver.Record("new", types.UID("new")), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if currentOf(created) == "" || len(pendingNames(created)) < 2 {
		t.Errorf("new: %+v", created)
	}
}

// checkFormerTurns checks the turns of records that a version stored in which one initializer acted at a time.
func checkFormerTurns(t *testing.T, client nsinitclient.NamespaceLifecycleInterface, quota, network string) {
	t.Helper()
	// The current initializers follow before anything is written.
	for selector, want := range map[string]string{
		"status.currentInitializer=" + quota: "serial waiting", "status.currentInitializer=" + network: "turn",
		"status.currentInitializer!=" + quota: "ending failed open turn", "status.currentInitializer=": "ending failed open",
	} {
		list, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, item := range list.Items {
			names = append(names, item.Name)
			began := time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)
			if initializers := item.Spec.Initializers; item.Name == "serial" &&
				(currentOf(&item) != quota || initializers.TurnStartTime != nil || !initializers.Pending[0].TurnStartTime.Time.Equal(began)) {
				t.Errorf("serial: current %q, initializers %+v", currentOf(&item), initializers)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
	// A deadline counts from the stored start of the turn, so a GET skips the initializer.
	if serial, err := client.Get(t.Context(), "serial", metav1.GetOptions{}); err != nil || currentOf(serial) != network || !slices.Equal(serial.Spec.Skipped, []string{quota}) {
		t.Errorf("serial: %v, current %q, skipped %q", err, currentOf(serial), serial.Spec.Skipped)
	}
}

func initializerNames(configuration *v1alpha1.NamespaceInitializerConfiguration) (names []string) {
	for _, initializer := range configuration.Initializers {
		names = append(names, initializer.Name)
	}
	return names
}
