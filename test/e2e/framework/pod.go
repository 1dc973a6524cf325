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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Pod is a pod on a Node. It has one container, and init containers that run beside it: sidecars.
type Pod struct {
	// Object is the pod as it was created, and Dir its folder. The file log in it is the container's log.
	Object *corev1.Pod
	Dir    string

	node   *Node
	ports  map[int32]string // ports on loopback, by the port in the manifest
	delete chan struct{}    // closed when the pod is being deleted

	mu       sync.Mutex
	process  *os.Process // nil: it does not run
	isReady  bool
	unready  int32 // number of failed probes since the last success
	restarts int32
}

// Restarts returns how often the process was restarted.
func (p *Pod) Restarts() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restarts
}

// WaitRestarted waits until the process was restarted more often than before.
func (p *Pod) WaitRestarted(t *testing.T, before int32) {
	t.Helper()
	Eventually(t, p.Object.Name+" is restarted", func(context.Context) error {
		if p.Restarts() == before {
			return errors.New("it was not")
		}
		return nil
	})
}

// Signal sends a signal to the process.
func (p *Pod) Signal(signal os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return errors.New(p.Object.Name + " does not run")
	}
	return p.process.Signal(signal)
}

// run runs the process again and again until the pod is deleted. Then it ends the sidecars.
func (p *Pod) run(ctx context.Context) {
	sidecars, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, container := range p.Object.Spec.InitContainers {
		running.Go(func() { p.runSidecar(sidecars, container) })
	}
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
		select { // a kubelet waits longer
		case <-p.delete:
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
			continue
		}
		break
	}
	end()
	running.Wait()
	if ctx.Err() == nil {
		_ = p.node.c.Core.CoreV1().Pods(p.Object.Namespace).Delete(ctx, p.Object.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.Object.UID},
		})
	}
}

// runSidecar runs the process of a sidecar again and again until the context ends.
func (p *Pod) runSidecar(ctx context.Context, container corev1.Container) {
	for ctx.Err() == nil {
		if command, err := p.program(container); err == nil && p.startLogged(command) == nil {
			stop := context.AfterFunc(ctx, func() { _ = command.Process.Signal(syscall.SIGTERM) })
			_ = command.Wait()
			stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// startLogged starts a command that writes to the log of the pod.
func (p *Pod) startLogged(command *exec.Cmd) error {
	log, err := os.OpenFile(filepath.Join(p.Dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	command.Stdout, command.Stderr = log, log
	if err = command.Start(); err != nil {
		_, _ = fmt.Fprintln(log, err)
	}
	return err
}

// runOnce runs the process until it ends, and reports whether it has to be restarted.
func (p *Pod) runOnce(ctx context.Context, command *exec.Cmd) (restart bool) {
	if p.startLogged(command) != nil {
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
			_ = p.mount(ctx, false)
			p.probe(ctx)
		}
	}
}

// end makes the process stop.
func (p *Pod) end() {
	select {
	case <-p.delete:
	default:
		close(p.delete)
	}
}

func (p *Pod) set(process *os.Process, ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process, p.isReady = process, ready
}

// probe sends the readiness probe, and writes the status of the pod if its readiness changed.
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

// port returns the port on loopback of a named port of the manifest.
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

// command prepares what the container needs, and returns its command.
func (p *Pod) command(ctx context.Context) (*exec.Cmd, error) {
	command, err := p.program(p.Object.Spec.Containers[0])
	if err != nil {
		return nil, err
	}
	if err := p.mount(ctx, true); err != nil {
		return nil, err
	}
	kubeconfig, err := p.kubeconfig(ctx)
	command.Args = append(command.Args, "--kubeconfig="+kubeconfig)
	return command, err
}

// program returns the command of a container with the paths and ports on this machine.
func (p *Pod) program(container corev1.Container) (*exec.Cmd, error) {
	bin := p.node.images[container.Image]
	if bin == "" {
		return nil, fmt.Errorf("there is no image %q", container.Image)
	}
	environment := map[string]string{}
	for _, variable := range container.Env {
		if source := variable.ValueFrom; source != nil {
			if source.FieldRef == nil || source.FieldRef.FieldPath != "metadata.namespace" {
				return nil, fmt.Errorf("the variable %s has an unknown source", variable.Name)
			}
			variable.Value = p.Object.Namespace
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
	command := exec.Command(filepath.Join(bin, filepath.Base(container.Command[0])), slices.Concat(container.Command[1:], args)...)
	command.Env = os.Environ()
	for name, value := range environment {
		command.Env = append(command.Env, name+"="+value)
	}
	return command, nil
}

// kubeconfig writes a kubeconfig with a token of the pod's service account, and returns its path.
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
