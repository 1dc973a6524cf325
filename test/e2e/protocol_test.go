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

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/initializer/conformance"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// protocolExample is an initializer in another language that runs with the rights that kubectl nsinit rbac prints.
type protocolExample struct {
	*framework.Cluster
	initializer, configuration string
	// user is a service account. kubeconfig, token and ca are files.
	user, kubeconfig, token, ca string
}

// newProtocolExample registers an initializer, and grants its rights.
func newProtocolExample(t *testing.T, c *framework.Cluster, registered v1alpha1.RegisteredInitializer, args ...string) *protocolExample {
	t.Helper()
	user, config := c.ServiceAccount(t, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	e := &protocolExample{Cluster: c, initializer: registered.Name, configuration: c.Configure(t, registered).Name, user: user,
		kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), token: filepath.Join(t.TempDir(), "token"), ca: filepath.Join(c.Dir, "pki", "ca.crt")}
	account := strings.TrimPrefix(user, "system:serviceaccount:")
	c.ApplyInput(t, c.MustPlugin(t, append([]string{"rbac", e.initializer, "--service-account=" + account, "--configuration=" + e.configuration}, args...)...))
	if err := os.WriteFile(e.token, []byte(config.BearerToken), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"": {Server: c.Admin.Host, CertificateAuthority: e.ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"": {TokenFile: e.token}},
		Contexts:       map[string]*clientcmdapi.Context{"": {}},
		CurrentContext: "",
	}, e.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return e
}

// check checks that a namespace opens with the greeting of the example, which acted as its service account, and that the
// initializer is served.
func (e *protocolExample) check(t *testing.T, greeting string) string {
	t.Helper()
	namespace := e.CreateNamespace(t, e.Admin).Name
	e.WaitReady(t, namespace)
	written, err := e.Core.CoreV1().ConfigMaps(namespace).Get(t.Context(), "greeting", metav1.GetOptions{})
	if err != nil || written.Data["from"] != greeting {
		t.Errorf("%v, greeting %v, want %q", err, written.Data, greeting)
	}
	lifecycle, err := e.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if entry := helper.Entry(lifecycle, e.initializer); entry.State != v1alpha1.InitializerDone || entry.LastActor != e.user {
		t.Errorf("the turn: %+v", entry)
	}
	framework.Eventually(t, e.initializer+" is served", func(ctx context.Context) error {
		configuration, err := e.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, e.configuration, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if status := helper.RegistrationStatus(configuration, e.initializer); status == nil || status.ReportTime == nil {
			return errors.New("it is not reported")
		}
		return nil
	})
	return namespace
}

// checkRefused checks that the example fails a namespace with a message, which users see, and that the namespace is removed.
func (e *protocolExample) checkRefused(t *testing.T) {
	t.Helper()
	// A finalizer of another program keeps the namespace, so that the test can read it.
	refused, err := e.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: e.Name("refused"), Labels: map[string]string{"greeting": "refused"}, Finalizers: []string{framework.Holder}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Release(t, refused.Name) })
	e.WaitCondition(t, refused.Name, v1alpha1.ConditionInitializing, fmt.Sprintf("initializer %q failed: the label greeting is refused", e.initializer))
	e.WaitNoLifecycle(t, refused.Name) // a participant has released it
	e.Release(t, refused.Name)
	e.WaitNoNamespace(t, refused.Name)
}

// TestProtocol: the example in Python acts, fails and finalizes, and recovers as authors of initializers are asked to.
func TestProtocol(t *testing.T) {
	c := framework.Connect(t)
	c.Build(t, filepath.Join("hack", "python"), "python", ".")
	// The first run extracts Python, which takes longer than the waits below on a busy machine.
	if out, err := exec.CommandContext(t.Context(), filepath.Join(framework.BinDir(), "python"), "--version").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	registered := v1alpha1.RegisteredInitializer{Name: "python.example.com", Finalizer: true}
	e := newProtocolExample(t, c, registered, "--finalizer", "--confine-to=configmaps")
	start := func(t *testing.T) *os.Process {
		t.Helper()
		return c.Run(t, "python", filepath.Join(c.Root, "sdk", "initializer", "examples", "python", "initializer.py"),
			"--name="+e.initializer, "--configuration="+e.configuration, "--server="+c.Admin.Host, "--ca="+e.ca, "--token="+e.token)
	}
	process := start(t)
	namespace := e.check(t, "Python")
	e.checkRefused(t)
	c.DeleteNamespace(t, namespace)
	c.WaitNoNamespace(t, namespace)
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, conformance.Suite{
		Config: c.Admin, Name: e.initializer, Namespaces: 4,
		Start: func(t *testing.T) func() {
			process := start(t)
			return func() { _ = process.Kill() }
		},
		Check: func(ctx context.Context, namespace *corev1.Namespace) error {
			_, err := c.Core.CoreV1().ConfigMaps(namespace.Name).Get(ctx, "greeting", metav1.GetOptions{})
			return err
		},
	})
}

// TestProtocolInShell: the example in shell acts and fails. If it is killed, it is not served any more.
func TestProtocolInShell(t *testing.T) {
	framework.Environment(t)
	e := newProtocolExample(t, framework.Share(t), v1alpha1.RegisteredInitializer{Name: "shell.example.com"})
	var log bytes.Buffer
	command := exec.Command(filepath.Join(e.Root, "sdk", "initializer", "examples", "shell", "initializer.sh"), e.initializer, e.configuration)
	command.Env, command.Stdout, command.Stderr = append(e.Environ(), "KUBECONFIG="+e.kubeconfig), &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to kill what it starts, too
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		_ = command.Wait() // until all of them have closed the log
		t.Logf("initializer.sh:\n%s", log.String())
	})
	e.check(t, "shell")
	e.checkRefused(t)
	_ = command.Process.Kill() // not what it started
	_, _ = command.Process.Wait()
	framework.Eventually(t, "the reports end", func(ctx context.Context) error {
		configuration, err := e.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Get(ctx, e.configuration, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := helper.RegistrationStatus(configuration, e.initializer)
		if served := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionServed); served == nil || served.Status != metav1.ConditionFalse {
			return fmt.Errorf("its status is %+v", status)
		}
		return nil
	})
}
