//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	utilnamespaces "github.com/nsinit/nsinit/pkg/util/namespaces"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// onVolume returns the arguments with which nsinit-apiserver runs on an embedded etcd in another
// directory, with a separate identity.
func onVolume(t *testing.T, c *framework.Cluster, dir string) []string {
	t.Helper()
	args := c.Arguments(t, "nsinit-apiserver")
	for i, arg := range args {
		if strings.HasPrefix(arg, "--embedded-etcd-dir=") {
			args[i] = "--embedded-etcd-dir=" + dir
		}
	}
	return append(args, "--storage-identity-configmap=nsinit-system/nsinit-storage-e2e")
}

// volume mounts a volume of a size that is unmounted when the test ends.
func volume(t *testing.T, size string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vol") // the path of etcd's socket is limited
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("this test mounts a small file system, for which it has to run as root: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(dir, syscall.MNT_DETACH), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// keep runs a program until the test ends, and restarts it when it exits, as a kubelet does. The returned function kills
// the running process.
func keep(t *testing.T, c *framework.Cluster, program string, args ...string) (kill func()) {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), program+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	kills, done := make(chan chan error), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			command := exec.CommandContext(ctx, filepath.Join(framework.BinDir(), program), args...)
			command.Stdout, command.Stderr = log, log
			if err := command.Start(); err != nil {
				t.Error(err)
				return
			}
			ended := make(chan struct{})
			go func() {
				_ = command.Wait()
				close(ended)
			}()
			select {
			case <-ended:
			case killed := <-kills:
				err := command.Process.Kill()
				<-ended
				killed <- err
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", program, said[max(0, len(said)-8000):])
		}
		_ = log.Close()
	})
	return func() {
		t.Helper()
		killed := make(chan error)
		kills <- killed
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
	}
}

// waitCheck waits until the plugin's check reports a finding.
func waitCheck(t *testing.T, c *framework.Cluster, parts ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("check says %q", parts), func(context.Context) error {
		out, _, _ := c.Plugin(t, "check")
		for _, part := range parts {
			if !strings.Contains(out, part) {
				return errors.New(out)
			}
		}
		return nil
	})
}

// annotate writes a configuration with so many bytes in an annotation.
func annotate(ctx context.Context, c *framework.Cluster, name string, size int) error {
	client := c.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e":"%s%s"}}}`, framework.UniqueName("x"), strings.Repeat("x", size))
	_, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// TestFullVolume: other programs fill the volume of the embedded etcd, so etcd ends and cannot start
// again. Meanwhile nsinit-apiserver serves discovery, even if it is restarted, namespaces without participants are
// deleted, and every namespace that waits reports the cause. Once there is space, everything continues.
func TestFullVolume(t *testing.T) {
	c := framework.Connect(t)
	dir := volume(t, "192m")
	storage := filepath.Join(dir, "etcd")
	args := onVolume(t, c, storage)
	c.ReplaceServer(t)
	restartEtcd := keep(t, c, "nsinit-apiserver", "etcd", "--embedded-etcd-dir="+storage)
	restart := keep(t, c, "nsinit-apiserver", args...)
	c.WaitServing(t)
	configuration := c.Configure(t, v1alpha1.RegisteredInitializer{Name: framework.Participant, Finalizer: true})
	held := c.CreateParticipated(t)

	rest := filepath.Join(dir, "of-another-program")
	file, err := os.Create(rest)
	if err != nil {
		t.Fatal(err)
	}
	block := bytes.Repeat([]byte("x"), 1<<20)
	for size := len(block); size > 0; {
		if _, err = file.Write(block[:size]); err != nil {
			size /= 2
		}
	}
	if err := file.Close(); !errors.Is(err, syscall.ENOSPC) && err != nil {
		t.Fatal(err)
	}
	const full = "the volume of etcd is full"
	direct := versioned.NewForConfigOrDie(c.Direct(t)).Discovery().RESTClient()
	readyz := func(part string) {
		t.Helper()
		framework.Eventually(t, "readyz says "+part, func(ctx context.Context) error {
			_ = annotate(ctx, c, configuration.Name, 200<<10)
			said, err := direct.Get().AbsPath("/readyz/etcd").MaxRetries(0).DoRaw(ctx)
			if !strings.Contains(string(said), part) {
				return errors.Join(err, fmt.Errorf("it says %q", said))
			}
			t.Logf("readyz: %s", said)
			return nil
		})
	}
	inService := func(ctx context.Context) error {
		said, err := direct.Get().RequestURI(readiness(t, c)).MaxRetries(0).DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("it is out of service: %w: %s", err, said)
		}
		return nil
	}
	serves := func() {
		t.Helper()
		for _, path := range []string{"/livez", "/apis/nsinit.dev/v1alpha1"} {
			if err := direct.Get().AbsPath(path).MaxRetries(0).Do(t.Context()).Error(); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		if err := inService(t.Context()); err != nil {
			t.Error(err)
		}
		// kube-apiserver reads it again after a while.
		framework.Eventually(t, "discovery through kube-apiserver", func(context.Context) error {
			lists, err := c.Core.Discovery().ServerPreferredResources()
			if err == nil && !strings.Contains(framework.JSON(t, lists), "namespacelifecycles") {
				err = errors.New("it lacks namespacelifecycles")
			}
			return err
		})
	}
	readyz(full)
	serves()
	late := c.CreateNamespace(t, c.Admin).Name
	c.WaitCondition(t, late, v1alpha1.ConditionInitializing, "True/LifecycleNotCreated", full)
	plain := c.CreateNamespace(t, c.Admin).Name
	c.DeleteNamespace(t, plain)
	c.DeleteNamespace(t, held)
	c.WaitNoNamespace(t, plain)
	c.WaitCondition(t, held, v1alpha1.ConditionFailing, "True/", full)
	if finding := c.WaitWhy(t, held, diagnosis.NsinitRefuses, diagnosis.Stuck); !strings.Contains(finding.Message, full) {
		t.Errorf("why says %q", finding.Message)
	}
	waitCheck(t, c, full)

	// nsinit-apiserver also starts without etcd.
	restartEtcd()
	restart()
	framework.Eventually(t, "it is in service after a restart", inService)
	readyz(full)
	serves()
	again := c.CreateNamespace(t, c.Admin).Name
	c.DeleteNamespace(t, again)
	c.WaitNoNamespace(t, again)

	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	freed := time.Now()
	c.WaitServing(t)
	t.Logf("it is ready %s after there was space", time.Since(freed).Round(time.Second))
	c.WaitCurrent(t, late, framework.Participant)
	c.RemoveFirst(t, late)
	c.WaitReady(t, late)
	c.WaitTerminating(t, held)
	c.WaitCondition(t, held, v1alpha1.ConditionFailing, "False/StepTaken")
	c.DeleteNamespace(t, late)
	for _, namespace := range []string{held, late} {
		c.ReleaseParticipant(t, namespace, framework.Participant)
		c.WaitNoNamespace(t, namespace)
	}
}

// TestFullQuota: the quota of the embedded etcd is used up. No object can be created, and every namespace that
// waits reports it. Reads, updates and deletions work, even after so many updates that etcd raises its
// alarm. Once an object is deleted, everything continues.
func TestFullQuota(t *testing.T) {
	c := framework.Connect(t)
	dir, err := os.MkdirTemp("", "quota")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const quota = 24 << 20
	args := onVolume(t, c, dir)
	c.ReplaceServer(t)
	c.Run(t, "nsinit-apiserver", "etcd", "--embedded-etcd-dir="+dir, fmt.Sprint("--embedded-etcd-quota-bytes=", quota))
	c.Run(t, "nsinit-apiserver", args...)
	c.WaitServing(t)
	configuration := c.Configure(t, v1alpha1.RegisteredInitializer{Name: framework.Participant, Finalizer: true})
	held, waiting := c.CreateParticipated(t), c.CreateNamespace(t, c.Admin).Name
	c.WaitCurrent(t, waiting, framework.Participant)

	populations := c.Nsinit.NsinitV1alpha1().NamespacePopulations()
	create := func(annotation string) (*v1alpha1.NamespacePopulation, error) {
		return populations.Create(t.Context(), &v1alpha1.NamespacePopulation{
			ObjectMeta: metav1.ObjectMeta{Name: framework.UniqueName("large"), Labels: map[string]string{"e2e": "large"}, Annotations: map[string]string{"e2e": annotation}},
			Spec:       v1alpha1.NamespacePopulationSpec{Manifests: []v1alpha1.PopulationManifest{framework.ConfigMapManifest("x", "x")}},
		}, metav1.CreateOptions{})
	}
	var small []string
	for range 2 {
		population, err := create("")
		if err != nil {
			t.Fatal(err)
		}
		small = append(small, population.Name)
	}
	large := strings.Repeat("x", 250<<10)
	// Old revisions may fill the database before its objects do. It is then compacted, and filled further.
	var refused error
	fill := func() {
		refused = nil
		for began := time.Now(); refused == nil || !strings.Contains(refused.Error(), "reserved for updates and deletions"); time.Sleep(50 * time.Millisecond) { // 5 MB a second
			if time.Since(began) > framework.Patience {
				t.Fatalf("the storage should be full long since: %v", refused)
			}
			_, refused = create(large)
		}
	}
	fill()
	// nsinit-apiserver compacts the database again. So what is in use grows further, by updates.
	for _, name := range small {
		framework.Eventually(t, "an update succeeds, also after etcd's alarm", func(ctx context.Context) error {
			_, err := populations.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e":%q}}}`, large), metav1.PatchOptions{})
			return err
		})
	}
	const full = "storage is full"
	if reason := apierrors.ReasonForError(refused); reason != "InsufficientStorage" || !strings.Contains(refused.Error(), full) {
		t.Errorf("a new object is refused by %v (%s)", refused, reason)
	}
	// If the database is compacted meanwhile, the record of the namespace finds room, and check finds nothing.
	late := c.CreateNamespace(t, c.Admin).Name
	framework.Eventually(t, "a new namespace and check report it", func(ctx context.Context) error {
		fill()
		if _, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, late, metav1.GetOptions{}); err == nil {
			late = c.CreateNamespace(t, c.Admin).Name
			return errors.New("the record of the namespace found room")
		}
		found, err := c.Core.CoreV1().Namespaces().Get(ctx, late, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := utilnamespaces.TrueCondition(found.Status.Conditions, v1alpha1.ConditionInitializing)
		if condition == nil || condition.Reason != v1alpha1.ReasonNoLifecycle || !strings.Contains(condition.Message, full) {
			return fmt.Errorf("the condition is %v", condition)
		}
		if out, _, _ := c.Plugin(t, "check"); !strings.Contains(out, full) {
			return errors.New(out)
		}
		return nil
	})

	// Each of these writes is small, and all of them fit into the reserve.
	if _, err := populations.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	c.RemoveFirst(t, waiting)
	c.WaitReady(t, waiting)
	// Five times as many updates as the reserve holds, so that etcd raises its alarm.
	const updates = quota / 2 / (200 << 10)
	var written, failed int
	for succeeded := time.Now(); written < updates && time.Since(succeeded) < framework.Patience; {
		if err := annotate(t.Context(), c, configuration.Name, 200<<10); err != nil {
			failed++
			time.Sleep(100 * time.Millisecond)
			continue
		}
		written, succeeded = written+1, time.Now()
	}
	t.Logf("%d updates of 200 KiB succeeded, %d failed and were tried again", written, failed)
	if written < updates || failed == 0 {
		t.Error("updates do not succeed any more, or no alarm was raised")
	}
	c.DeleteNamespace(t, held)
	c.ReleaseParticipant(t, held, framework.Participant)
	c.WaitNoNamespace(t, held)

	list, err := populations.List(t.Context(), metav1.ListOptions{LabelSelector: "e2e=large"})
	if err != nil {
		t.Fatal(err)
	}
	for _, population := range list.Items {
		framework.Eventually(t, "a population is deleted", func(ctx context.Context) error {
			err := populations.Delete(ctx, population.Name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	c.WaitCurrent(t, late, framework.Participant)
	c.RemoveFirst(t, late)
	c.WaitReady(t, late)
	for _, namespace := range []string{waiting, late} {
		c.DeleteNamespace(t, namespace)
		c.ReleaseParticipant(t, namespace, framework.Participant)
		c.WaitNoNamespace(t, namespace)
	}
}

// TestFullEtcdCluster: an operator's etcd cluster has raised the alarm NOSPACE. A namespace whose participant cannot be
// checked reports it, and so do why and check. Everything continues once the operator has freed space.
func TestFullEtcdCluster(t *testing.T) {
	c := framework.Connect(t)
	url, _ := c.StartEtcd(t, fmt.Sprint("--quota-backend-bytes=", 16<<20))
	args := c.OnEtcd(t, url)
	c.ReplaceServer(t)
	c.Run(t, "nsinit-apiserver", args...)
	c.WaitServing(t)
	c.Configure(t, v1alpha1.RegisteredInitializer{Name: framework.Participant, Finalizer: true})
	held := c.CreateParticipated(t)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	var last int64
	for value := strings.Repeat("x", 1<<20); err == nil; {
		var put *clientv3.PutResponse
		if put, err = etcd.Put(t.Context(), "/of-another/program", value); err == nil {
			last = put.Header.Revision
		}
	}
	if !strings.Contains(err.Error(), "space exceeded") {
		t.Fatal(err)
	}
	c.DeleteNamespace(t, held)
	c.WaitCondition(t, held, v1alpha1.ConditionFailing, "True/DeleteLifecycleFailed", "database space exceeded")
	if namespace, err := c.Core.CoreV1().Namespaces().Get(t.Context(), held, metav1.GetOptions{}); err != nil || namespace.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("the namespace: %v %v", namespace.Status, err)
	}
	if finding := c.WaitWhy(t, held, diagnosis.NsinitFailing, diagnosis.Stuck); !strings.Contains(finding.Message, "database space exceeded") {
		t.Errorf("why says %q", finding.Message)
	}
	waitCheck(t, c, "etcd has raised the alarm NOSPACE")

	if _, err := etcd.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Defragment(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	c.WaitTerminating(t, held)
	c.WaitCondition(t, held, v1alpha1.ConditionFailing, "False/StepTaken")
	waitCheck(t, c, "the storage accepts new objects")
	c.ReleaseParticipant(t, held, framework.Participant)
	c.WaitNoNamespace(t, held)
}
