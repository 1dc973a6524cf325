/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Pod is a pod that runs here.
type Pod struct {
	node   *Node
	Object *corev1.Pod
	Dir    string
	ports  map[int32]string // by the port in the manifest
	delete chan struct{}    // closed when the pod is being deleted

	mu       sync.Mutex
	process  *os.Process // nil: it does not run
	isReady  bool
	unready  int32 // how often in succession the probe has failed
	restarts int32
}

func (p *Pod) end() {
	select {
	case <-p.delete:
	default:
		close(p.delete)
	}
}

// run is the life of a pod.
func (p *Pod) run(ctx context.Context) {
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
		_ = p.node.c.Core.CoreV1().Pods(p.Object.Namespace).Delete(ctx, p.Object.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.Object.UID},
		})
	}
}

// runOnce runs the process until it ends, and says whether it has to be restarted.
func (p *Pod) runOnce(ctx context.Context, command *exec.Cmd) (restart bool) {
	log, err := os.OpenFile(filepath.Join(p.Dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
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
			deleted, deadline = nil, time.After(time.Duration(*p.Object.Spec.TerminationGracePeriodSeconds)*time.Second)
			_ = command.Process.Signal(syscall.SIGTERM)
		case <-deadline:
			p.node.t.Errorf("pod %s has not ended within its grace period, and is killed", p.Object.Name)
			_ = command.Process.Kill()
		case <-time.After(250 * time.Millisecond):
			p.bring(ctx)
			p.probe(ctx)
		}
	}
}

func (p *Pod) set(process *os.Process, ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process, p.isReady = process, ready
}

// probe looks whether the pod is ready, and reports what has changed.
func (p *Pod) probe(ctx context.Context) {
	get := p.Object.Spec.Containers[0].ReadinessProbe.HTTPGet
	response, err := p.node.Probes.Get(strings.ToLower(string(get.Scheme)) + "://127.0.0.1:" + p.port(get.Port.String()) + get.Path)
	if err == nil {
		_ = response.Body.Close()
	}
	p.mu.Lock()
	p.unready++
	if err == nil && response.StatusCode == http.StatusOK {
		p.unready = 0
	}
	// A ready pod stays ready until the probe has failed often enough.
	ready := p.process != nil && (p.unready == 0 || p.isReady && p.unready < p.Object.Spec.Containers[0].ReadinessProbe.FailureThreshold)
	changed := ready != p.isReady
	p.isReady = ready
	p.mu.Unlock()
	if changed {
		_ = p.report(ctx, nil)
	}
}

// port returns the port on loopback of a port of the manifest.
func (p *Pod) port(name string) string {
	for _, port := range p.Object.Spec.Containers[0].Ports {
		if port.Name == name {
			return p.ports[port.ContainerPort]
		}
	}
	return ""
}

// report writes the status of the pod.
func (p *Pod) report(ctx context.Context, problem error) error {
	container := p.Object.Spec.Containers[0]
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
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.Object.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = p.node.c.Core.CoreV1().Pods(p.Object.Namespace).Patch(ctx, p.Object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// command prepares everything that the container needs, and returns its command.
func (p *Pod) command(ctx context.Context) (*exec.Cmd, error) {
	container := p.Object.Spec.Containers[0]
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
			configMap, err := p.node.c.Core.CoreV1().ConfigMaps(p.Object.Namespace).Get(ctx, source.ConfigMapKeyRef.Name, metav1.GetOptions{})
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
				p.ports[port.ContainerPort] = FreePort(p.node.t)
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
func (p *Pod) kubeconfig(ctx context.Context) (string, error) {
	token, err := p.node.c.Core.CoreV1().ServiceAccounts(p.Object.Namespace).CreateToken(ctx, p.Object.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600)), BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: p.Object.Name, UID: p.Object.UID,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: p.node.c.Admin.Host, CertificateAuthority: p.node.c.Admin.CAFile, CertificateAuthorityData: p.node.c.Admin.CAData}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	path := filepath.Join(p.Dir, "kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// volume returns the folder of a volume: one that is claimed outlives the pod.
func (p *Pod) volume(name string) string {
	for _, volume := range p.Object.Spec.Volumes {
		if volume.Name == name && volume.PersistentVolumeClaim != nil {
			return filepath.Join(p.node.Dir, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return filepath.Join(p.Dir, name)
}

// bring brings what has changed in Secrets.
func (p *Pod) bring(ctx context.Context) { _ = p.bringVolumes(ctx, false) }

// bringVolumes makes the folder of each volume, with what is in its Secret.
func (p *Pod) bringVolumes(ctx context.Context, first bool) error {
	for _, volume := range p.Object.Spec.Volumes {
		dir := p.volume(volume.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		source := volume.Secret
		if source == nil {
			continue
		}
		secret, err := p.node.c.Core.CoreV1().Secrets(p.Object.Namespace).Get(ctx, source.SecretName, metav1.GetOptions{})
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

// Restarts returns how often the pod's process was started again.
func (p *Pod) Restarts() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

// WaitRestarted waits until the pod's process was started again, more often than before.
func (p *Pod) WaitRestarted(t *testing.T, before int32) {
	t.Helper()
	Eventually(t, p.Object.Name+" is started again", func(context.Context) error {
		if p.Restarts() == before {
			return errors.New("it is not yet")
		}
		return nil
	})
}

// Signal sends a signal to a pod's process.
func (p *Pod) Signal(signal os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return errors.New(p.Object.Name + " does not run")
	}
	return p.process.Signal(signal)
}
