/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
)

// startLimit is how long a program may take to be ready: much longer than it takes on a busy machine.
const startLimit = 3 * time.Minute

// start starts the programs and installs nsinit. The controllers come last, because they open the namespace
// that shows the gate.
func (c *Cluster) start(ctx context.Context) error {
	ctxProbe, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.probe(ctxProbe)
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return c.startAll(ctx, etcd, nsinitEtcd) },
		func(ctx context.Context) error { return c.startAll(ctx, kubeAPIServer) },
		func(ctx context.Context) error { return c.startAll(ctx, kubeControllerManager) },
		c.createNodes,
		func(ctx context.Context) error { return c.startAll(ctx, kubeScheduler) },
		c.base.ApplyBase,
		func(ctx context.Context) error { return c.startAll(ctx, nsinitAPIServer) },
		c.base.ApplyPolicies,
		c.installObjects,
		c.gatesAct,
		func(ctx context.Context) error { return c.startAll(ctx, controllerManager, policyPopulation) },
		c.opens,
		c.stamps,
		c.objectsGuarded,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startAll starts the replicas of programs, and waits until they are ready.
func (c *Cluster) startAll(ctx context.Context, programs ...string) error {
	var started []string
	for _, name := range c.names {
		for _, program := range programs {
			if name == program || isReplica(name, program) {
				started = append(started, name)
				if err := c.StartProgram(ctx, name); err != nil {
					return err
				}
			}
		}
	}
	return c.WaitReady(ctx, started...)
}

func isReplica(name, program string) bool {
	rest, is := strings.CutPrefix(name, program+"-")
	return is && len(rest) == 1
}

// WaitReady waits until programs are ready, all of them by default: after faults, and with every link
// healed.
func (c *Cluster) WaitReady(ctx context.Context, programs ...string) error {
	if len(programs) == 0 {
		programs = c.names
	}
	for _, program := range programs {
		if err := eventually(ctx, func(ctx context.Context) error { return c.Ready(ctx, program) }); err != nil {
			log, _ := os.ReadFile(c.LogFile(program))
			return fmt.Errorf("%s is not ready: %w\nend of %s:\n%s", program, err, c.LogFile(program), log[max(0, len(log)-2000):])
		}
	}
	return nil
}

// eventually waits until a check returns nil, and returns its last error.
func eventually(ctx context.Context, check func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, startLimit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// Ready returns why a program is not ready.
func (c *Cluster) Ready(ctx context.Context, program string) error {
	if !c.Running(program) {
		return fmt.Errorf("%s does not run", program)
	}
	switch {
	case program == etcd || isReplica(program, nsinitEtcd):
		status, err := c.etcdStatus(ctx, program)
		if err == nil && status.Leader == 0 {
			err = fmt.Errorf("%s has no leader", program)
		}
		return err
	case isReplica(program, kubeAPIServer):
		config := rest.CopyConfig(c.admin)
		config.Host = c.url(program)
		return kubernetes.NewForConfigOrDie(config).Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	case program == kubeControllerManager:
		_, err := kubernetes.NewForConfigOrDie(c.admin).CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	case isReplica(program, nsinitAPIServer):
		return c.served(ctx, program)
	case isReplica(program, controllerManager), program == kubeScheduler:
		return c.healthy(ctx, c.url(program)+"/healthz")
	default:
		return c.healthy(ctx, "http://"+c.address(program)+"/readyz")
	}
}

// served returns why a replica of nsinit-apiserver is not ready, or not reached through a kube-apiserver.
func (c *Cluster) served(ctx context.Context, program string) error {
	if err := c.healthy(ctx, c.url(program)+"/readyz"); err != nil {
		return err
	}
	for _, r := range c.replicas {
		if r.name == program && !r.ready.Load() {
			return fmt.Errorf("%s gets no connections yet", program)
		}
	}
	for i := range c.options.Topology.KubeAPIServers {
		if _, err := versioned.NewForConfigOrDie(c.Admin(i)).NsinitV1alpha1().NamespaceLifecycles().List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("through kube-apiserver-%d: %w", i, err)
		}
	}
	return c.base.Served(ctx)
}

func (c *Cluster) healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// As in kubelet: the certificate is not checked, and each probe connects.
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as it says
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return err
}

// probeLabel is the label of the namespace by which Start checks the policies.
const probeLabel = "faults.nsinit.dev/probe"

func (c *Cluster) createProbe(ctx context.Context, server int, labels map[string]string, dryRun ...string) (*corev1.Namespace, error) {
	return kubernetes.NewForConfigOrDie(c.Admin(server)).CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Labels: labels}}, metav1.CreateOptions{DryRun: dryRun})
}

// opens waits until the namespace that gatesAct created is open, and deletes it.
func (c *Cluster) opens(ctx context.Context) error {
	namespaces := kubernetes.NewForConfigOrDie(c.admin).CoreV1().Namespaces()
	return eventually(ctx, func(ctx context.Context) error {
		list, err := namespaces.List(ctx, metav1.ListOptions{LabelSelector: probeLabel})
		if err != nil {
			return err
		}
		for _, namespace := range list.Items {
			if _, closed := namespace.Labels[v1alpha1.LabelInitializing]; closed {
				return fmt.Errorf("namespace %s is closed", namespace.Name)
			}
			if err := namespaces.Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	})
}

// stamps waits until each kube-apiserver stamps new namespaces, and checks them.
func (c *Cluster) stamps(ctx context.Context) error {
	return eventually(ctx, func(ctx context.Context) error {
		for i := range c.options.Topology.KubeAPIServers {
			stamped, err := c.createProbe(ctx, i, nil, metav1.DryRunAll)
			if err != nil {
				return err
			}
			if _, closed := stamped.Labels[v1alpha1.LabelInitializing]; !closed {
				return fmt.Errorf("kube-apiserver-%d does not stamp a new namespace", i)
			}
			config := c.Admin(i)
			config.Impersonate = rest.ImpersonationConfig{UserName: controlplane.ProbeUser}
			_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Create(ctx, controlplane.TooLarge(stamped.Name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil || !strings.Contains(err.Error(), "nsinit-guard-create") {
				return errors.Join(fmt.Errorf("the guard of creation of kube-apiserver-%d does not act", i), err)
			}
		}
		return nil
	})
}

// gatesAct creates a closed namespace, and waits until each kube-apiserver refuses a write into it.
func (c *Cluster) gatesAct(ctx context.Context) error {
	namespace, err := c.createProbe(ctx, 0, map[string]string{probeLabel: "", v1alpha1.LabelInitializing: "true"})
	if err != nil {
		return err
	}
	for i := range c.options.Topology.KubeAPIServers {
		if err := eventually(ctx, func(ctx context.Context) error {
			config := c.Admin(i)
			config.Impersonate = rest.ImpersonationConfig{UserName: controlplane.ProbeUser}
			_, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(namespace.Name).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil || !strings.Contains(err.Error(), "nsinit-gate") {
				return errors.Join(fmt.Errorf("the gate of kube-apiserver-%d does not act", i), err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
