//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const nodeName = "loopback"

// node runs the pods of nsinit-system as processes on loopback. It is their scheduler and their
// kubelet: it binds pods, brings Secrets, ConfigMaps and volumes, makes tokens of their service
// accounts, looks at probes, restarts what has ended, and ends what is deleted as a kubelet does.
// Everything else, such as rollouts, is done by the controllers of Kubernetes.
type node struct {
	c   *cluster
	t   *testing.T
	dir string
	// images are the folders of the programs of each image.
	images map[string]string
	probes *http.Client

	mu   sync.Mutex
	pods map[types.UID]*pod
}

// pod is a pod that runs here.
type pod struct {
	node   *node
	object *corev1.Pod
	dir    string
	ports  map[int32]string // by the port in the manifest
	delete chan struct{}    // closed when the pod is being deleted

	mu       sync.Mutex
	process  *os.Process // nil: it does not run
	isReady  bool
	unready  int32 // how often in succession the probe has failed
	restarts int32
}

// startNode runs a node until the test ends.
func (c *cluster) startNode(t *testing.T, images map[string]string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") // the path of etcd's socket is limited
	if err != nil {
		t.Fatal(err)
	}
	n := &node{c: c, t: t, dir: dir, images: images, pods: map[types.UID]*pod{},
		// As in kubelet: the certificate is not looked at, and each probe connects.
		probes: &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}} //nolint:gosec // as it says
	created, err := c.core.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Loopback", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	if _, err := c.core.CoreV1().Nodes().UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { n.heartbeat(ctx) })
	work.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			n.sync(ctx, &work)
		}
	})
	t.Cleanup(func() {
		cancel()
		work.Wait()
		if t.Failed() {
			n.printLogs()
		}
		_ = os.RemoveAll(dir)
	})
	return n
}

// heartbeat renews the node's lease, so that nobody evicts its pods.
func (n *node) heartbeat(ctx context.Context) {
	leases := n.c.core.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for ctx.Err() == nil {
		patch := []byte(`{"spec":{"renewTime":"` + metav1.NowMicro().UTC().Format(metav1.RFC3339Micro) + `"}}`)
		if _, err := leases.Patch(ctx, nodeName, types.MergePatchType, patch, metav1.PatchOptions{}); apierrors.IsNotFound(err) {
			_, _ = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(nodeName), LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro()),
			}}, metav1.CreateOptions{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
}

// sync binds and begins what is new, and tells the rest that it is deleted.
func (n *node) sync(ctx context.Context, work *sync.WaitGroup) {
	listed, err := n.c.core.CoreV1().Pods("nsinit-system").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	exist := map[types.UID]bool{}
	for _, object := range listed.Items {
		exist[object.UID] = true
		p := n.pods[object.UID]
		switch {
		case object.Spec.NodeName == "":
			_ = n.c.core.CoreV1().Pods(object.Namespace).Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName},
			}, metav1.CreateOptions{})
		case p == nil:
			p = &pod{node: n, object: &object, dir: filepath.Join(n.dir, string(object.UID)), ports: map[int32]string{}, delete: make(chan struct{})}
			n.pods[object.UID] = p
			work.Go(func() { p.run(ctx) })
		}
		if p != nil && object.DeletionTimestamp != nil {
			p.end()
		}
	}
	for uid, p := range n.pods {
		if !exist[uid] {
			p.end()
			delete(n.pods, uid)
		}
	}
}

func (p *pod) end() {
	select {
	case <-p.delete:
	default:
		close(p.delete)
	}
}

// run is the life of a pod.
func (p *pod) run(ctx context.Context) {
	for ctx.Err() == nil {
		command, err := p.command(ctx)
		if err == nil {
			if !p.runOnce(ctx, command) {
				break
			}
			p.mu.Lock()
			p.restarts++
			p.mu.Unlock()
		}
		_ = p.report(ctx, err)
		select { // shorter than in kubelet
		case <-p.delete:
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
			continue
		}
		break
	}
	if ctx.Err() == nil {
		_ = p.node.c.core.CoreV1().Pods(p.object.Namespace).Delete(ctx, p.object.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.object.UID},
		})
	}
}

// runOnce runs the process until it ends, and says whether it has to be restarted.
func (p *pod) runOnce(ctx context.Context, command *exec.Cmd) (restart bool) {
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return true
	}
	defer func() { _ = log.Close() }()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		_, _ = fmt.Fprintln(log, err)
		return true
	}
	p.set(command.Process, false)
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		p.set(nil, false)
		close(ended)
	}()
	_ = p.report(ctx, nil)
	var deadline <-chan time.Time
	deleted := p.delete
	for {
		select {
		case <-ended:
			return deadline == nil && ctx.Err() == nil
		case <-ctx.Done():
			_ = command.Process.Kill()
			<-ended
			return false
		case <-deleted:
			deleted, deadline = nil, time.After(time.Duration(*p.object.Spec.TerminationGracePeriodSeconds)*time.Second)
			_ = command.Process.Signal(syscall.SIGTERM)
		case <-deadline:
			p.node.t.Errorf("pod %s has not ended within its grace period, and is killed", p.object.Name)
			_ = command.Process.Kill()
		case <-time.After(250 * time.Millisecond):
			p.bring(ctx)
			p.probe(ctx)
		}
	}
}

func (p *pod) set(process *os.Process, ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process, p.isReady = process, ready
}

// probe looks whether the pod is ready, and reports what has changed.
func (p *pod) probe(ctx context.Context) {
	get := p.object.Spec.Containers[0].ReadinessProbe.HTTPGet
	response, err := p.node.probes.Get(strings.ToLower(string(get.Scheme)) + "://127.0.0.1:" + p.port(get.Port.String()) + get.Path)
	if err == nil {
		_ = response.Body.Close()
	}
	p.mu.Lock()
	p.unready++
	if err == nil && response.StatusCode == http.StatusOK {
		p.unready = 0
	}
	// A ready pod stays ready until the probe has failed often enough.
	ready := p.process != nil && (p.unready == 0 || p.isReady && p.unready < p.object.Spec.Containers[0].ReadinessProbe.FailureThreshold)
	changed := ready != p.isReady
	p.isReady = ready
	p.mu.Unlock()
	if changed {
		_ = p.report(ctx, nil)
	}
}

// port returns the port on loopback of a port of the manifest.
func (p *pod) port(name string) string {
	for _, port := range p.object.Spec.Containers[0].Ports {
		if port.Name == name {
			return p.ports[port.ContainerPort]
		}
	}
	return ""
}

// report writes the status of the pod.
func (p *pod) report(ctx context.Context, problem error) error {
	container := p.object.Spec.Containers[0]
	p.mu.Lock()
	status := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: container.Name, Image: container.Image, RestartCount: p.restarts, Ready: p.isReady, Started: new(p.process != nil),
	}}}
	ready := corev1.ConditionFalse
	if p.isReady {
		ready = corev1.ConditionTrue
	}
	state := &status.ContainerStatuses[0].State
	if p.process != nil {
		state.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	} else {
		state.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		if problem != nil {
			status.Phase, state.Waiting.Reason, state.Waiting.Message = corev1.PodPending, "ContainerCreating", problem.Error()
		}
	}
	p.mu.Unlock()
	for _, condition := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition, Status: ready, LastTransitionTime: metav1.Now()})
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.object.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = p.node.c.core.CoreV1().Pods(p.object.Namespace).Patch(ctx, p.object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// command prepares everything that the container needs, and returns its command.
func (p *pod) command(ctx context.Context) (*exec.Cmd, error) {
	container := p.object.Spec.Containers[0]
	bin := p.node.images[container.Image]
	if bin == "" {
		return nil, fmt.Errorf("there is no image %q", container.Image)
	}
	if err := p.bringVolumes(ctx, true); err != nil {
		return nil, err
	}
	kubeconfig, err := p.kubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	environment := map[string]string{}
	for _, variable := range container.Env {
		if source := variable.ValueFrom; source != nil {
			configMap, err := p.node.c.core.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, source.ConfigMapKeyRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			variable.Value = configMap.Data[source.ConfigMapKeyRef.Key]
		}
		environment[variable.Name] = variable.Value
	}
	args := slices.Clone(container.Args)
	for i := range args {
		for name, value := range environment {
			args[i] = strings.ReplaceAll(args[i], "$("+name+")", value)
		}
		for _, mount := range container.VolumeMounts {
			args[i] = strings.ReplaceAll(args[i], "="+mount.MountPath+"/", "="+p.volume(mount.Name)+"/")
		}
		for _, port := range container.Ports {
			if p.ports[port.ContainerPort] == "" {
				p.ports[port.ContainerPort] = freePort(p.node.t)
			}
			from, to := fmt.Sprint(port.ContainerPort), p.ports[port.ContainerPort]
			if before, is := strings.CutSuffix(args[i], "="+from); is {
				args[i] = before + "=" + to
				args = append(args, "--bind-address=127.0.0.1")
			} else if before, is := strings.CutSuffix(args[i], "=:"+from); is {
				args[i] = before + "=127.0.0.1:" + to
			}
		}
	}
	return exec.Command(filepath.Join(bin, filepath.Base(container.Command[0])), append(args, "--kubeconfig="+kubeconfig)...), nil
}

// kubeconfig writes one with a token of the pod's service account, as the kubelet asks for it.
func (p *pod) kubeconfig(ctx context.Context) (string, error) {
	token, err := p.node.c.core.CoreV1().ServiceAccounts(p.object.Namespace).CreateToken(ctx, p.object.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600)), BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: p.object.Name, UID: p.object.UID,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: p.node.c.admin.Host, CertificateAuthority: p.node.c.admin.CAFile, CertificateAuthorityData: p.node.c.admin.CAData}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	path := filepath.Join(p.dir, "kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// volume returns the folder of a volume: one that is claimed outlives the pod.
func (p *pod) volume(name string) string {
	for _, volume := range p.object.Spec.Volumes {
		if volume.Name == name && volume.PersistentVolumeClaim != nil {
			return filepath.Join(p.node.dir, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return filepath.Join(p.dir, name)
}

// bring brings what has changed in Secrets.
func (p *pod) bring(ctx context.Context) { _ = p.bringVolumes(ctx, false) }

// bringVolumes makes the folder of each volume, with what is in its Secret.
func (p *pod) bringVolumes(ctx context.Context, first bool) error {
	for _, volume := range p.object.Spec.Volumes {
		dir := p.volume(volume.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		source := volume.Secret
		if source == nil {
			continue
		}
		secret, err := p.node.c.core.CoreV1().Secrets(p.object.Namespace).Get(ctx, source.SecretName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && (!first || source.Optional != nil && *source.Optional):
			continue
		case err != nil:
			return err
		}
		if err := project(dir, secret, source.Items); err != nil {
			return err
		}
	}
	return nil
}

// project writes the keys of a Secret into a folder, all of them at once.
func project(dir string, secret *corev1.Secret, items []corev1.KeyToPath) error {
	if len(items) == 0 {
		for key := range secret.Data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	version := filepath.Join(dir, ".version")
	if last, _ := os.ReadFile(version); string(last) == secret.ResourceVersion {
		return nil
	}
	for _, item := range items {
		data, found := secret.Data[item.Key]
		if !found {
			return errors.New("references non-existent secret key: " + item.Key)
		}
		if err := os.WriteFile(filepath.Join(dir, "."+item.Path), data, 0o600); err != nil {
			return err
		}
	}
	for _, item := range items {
		if err := os.Rename(filepath.Join(dir, "."+item.Path), filepath.Join(dir, item.Path)); err != nil {
			return err
		}
	}
	return os.WriteFile(version, []byte(secret.ResourceVersion), 0o600)
}

// running returns the pods of an app that run, the oldest first.
func (n *node) running(app string) []*pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*pod
	for _, p := range n.pods {
		p.mu.Lock()
		if p.object.Labels["app.kubernetes.io/name"] == app && p.process != nil {
			all = append(all, p)
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b *pod) int { return a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time) })
	return all
}

// addresses returns where the ready pods of an app listen. A pod that is being deleted is no
// endpoint any more.
func (n *node) addresses(app string) []string {
	var all []string
	for _, p := range n.running(app) {
		p.mu.Lock()
		select {
		case <-p.delete:
		default:
			if p.isReady {
				all = append(all, "127.0.0.1:"+p.port("https"))
			}
		}
		p.mu.Unlock()
	}
	return all
}

// restarted returns how often the pod's process was started again.
func (p *pod) restarted() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

// waitRestarted waits until the pod's process was started again, more often than before.
func (p *pod) waitRestarted(t *testing.T, before int32) {
	t.Helper()
	eventually(t, p.object.Name+" is started again", func(context.Context) error {
		if p.restarted() == before {
			return errors.New("it is not yet")
		}
		return nil
	})
}

// signal sends a signal to a pod's process.
func (p *pod) signal(signal os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return errors.New(p.object.Name + " does not run")
	}
	return p.process.Signal(signal)
}

// printLogs prints the end of each log.
func (n *node) printLogs() {
	logs, _ := filepath.Glob(filepath.Join(n.dir, "*", "log"))
	for _, log := range logs {
		data, _ := os.ReadFile(log)
		n.t.Logf("%s:\n%s", log, data[max(0, len(data)-3000):])
	}
}
