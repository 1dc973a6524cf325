/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	demoNamespace = "shop"
	// secondNamespace is that of artifacts/examples/namespace-with-content.yaml.
	secondNamespace = "bakery"
	approval        = "approval.example.com"
	settleLimit     = time.Minute
	// approvalTakes is the time until the second initializer approves the second namespace.
	approvalTakes = 3 * time.Second
)

// story is the demo while it plays.
type story struct {
	*Cluster
	alice, approver string
	created         time.Time
}

// Demo plays the life of a namespace, and checks each step. It returns the first error, and stops what it
// started.
func (c *Cluster) Demo(ctx context.Context) (err error) {
	if c.Process("kube-apiserver").Active() {
		return fmt.Errorf("a control plane runs in %s: stop it first (%s), the demo starts another one", c.Dir, c.downCommand())
	}
	// Only the ports and identities of an earlier control plane are kept.
	for _, left := range []string{c.path("etcd"), c.nsinitEtcdDir(), c.path("audit.log"), c.logStoreDir()} {
		if err := os.RemoveAll(left); err != nil {
			return err
		}
	}
	for _, name := range ProgramNames() {
		if err := os.RemoveAll(c.Process(name).LogFile()); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx)), os.RemoveAll(c.logStoreDir())) }()
	if err := c.Up(ctx); err != nil {
		return err
	}
	s := &story{Cluster: c}
	for _, step := range []struct {
		title string
		play  func(context.Context) (string, error)
	}{
		{"two initializers are registered", s.register},
		{"the initializer policy-population starts", s.startHook},
		{"alice, a tenant, creates a namespace, and cannot write into it", s.create},
		{"it is closed, and its creator is recorded", s.stamped},
		{"policy-population has done its work", s.populated},
		{"alice still cannot write, and the error names the pending initializer", s.refused},
		{"the second initializer can write", s.initializerWrites},
		{"Kubernetes' own controllers did their work", s.systemObjects},
		{"the conditions of the namespace name the pending initializer", s.visible},
		{"the second initializer is done", s.approve},
		{"the namespace is Ready", s.ready},
		{"alice writes", s.written},
		{"the initializers had finished before alice wrote", s.before},
		{"the gate refused no controller", s.controllersAllowed},
		{"a log store starts, and http-provisioner, which gives each namespace an index in it", s.startLogStore},
		{"with artifacts/early-writes, kubectl apply of a namespace with its content waits until the namespace is open", s.appliesAll},
		{"the namespace has its index", s.indexed},
		{"the namespaces are deleted, with their NamespaceLifecycles and the index", s.deleted},
	} {
		evidence, err := step.play(ctx)
		if err != nil {
			c.say("FAILED: %s", step.title)
			return err
		}
		c.say("%s", step.title)
		for line := range strings.SplitSeq(strings.TrimSpace(evidence), "\n") {
			fmt.Printf("             %s\n", line)
		}
	}
	c.say("every step succeeded")
	return nil
}

func (s *story) register(ctx context.Context) (string, error) {
	var err error
	if s.alice, err = s.UserKubeconfig("alice", "team-a"); err != nil {
		return "", err
	}
	if s.approver, err = s.UserKubeconfig("approver"); err != nil {
		return "", err
	}
	if err := s.applyExamples(ctx); err != nil {
		return "", err
	}
	out, err := s.Admin(ctx, "get", "namespaceinitializerconfigurations")
	return out, expect(err, out, "policy-population.nsinit.dev", approval)
}

func (s *story) startHook(ctx context.Context) (string, error) {
	return "its rights: see artifacts/deploy/base/policy-population.yaml", s.ensure(ctx, "policy-population", func() error { return nil })
}

func (s *story) create(ctx context.Context) (string, error) {
	for _, question := range []struct{ args, want string }{
		{"create namespaces", "yes"}, {"create configmaps --namespace " + demoNamespace, "yes"},
		{"initialize namespaces", "no"}, {"create rolebindings --namespace " + demoNamespace, "no"},
	} {
		out, _ := s.kubectl(ctx, s.alice, append([]string{"auth", "can-i"}, strings.Fields(question.args)...)...)
		if strings.TrimSpace(out) != question.want {
			return "", fmt.Errorf("kubectl auth can-i %s as alice: %q, want %s", question.args, out, question.want)
		}
	}
	out, err := s.kubectl(ctx, s.alice, "create", "namespace", demoNamespace)
	s.created = time.Now()
	if err != nil {
		return "", err
	}
	_, err = s.writeTooEarly(ctx)
	return out + "kubectl create configmap, immediately: refused by the gate", err
}

func (s *story) stamped(ctx context.Context) (string, error) {
	out, err := s.kubectl(ctx, s.alice, "get", "namespace", demoNamespace,
		"-o", `jsonpath=initializing={.metadata.labels.nsinit\.dev/initializing} created-by={.metadata.annotations.nsinit\.dev/created-by} groups={.metadata.annotations.nsinit\.dev/created-by-groups}`)
	return strings.ReplaceAll(out, "\n", ","), expect(err, out, "initializing=true", "created-by=alice", "team-a")
}

func (s *story) populated(ctx context.Context) (string, error) {
	out, err := s.until(ctx, func() (string, error) {
		out, err := s.Admin(ctx, "get", "nsl", demoNamespace)
		return out, expect(err, out, "Initializing", approval)
	})
	if err != nil {
		return "", err
	}
	made, err := s.Admin(ctx, append([]string{"get", "--namespace", demoNamespace, "-o", "name"}, populatedObjects()...)...)
	if err != nil {
		return "", err
	}
	return out + strings.ReplaceAll(strings.TrimSpace(made), "\n", "  "), s.stillClosed(ctx)
}

// populatedObjects are the objects that policy-population puts into each namespace, as kind/name.
func populatedObjects() []string {
	return []string{"rolebindings/namespace-admin", "resourcequotas/default", "limitranges/default", "networkpolicies/default-deny"}
}

// refused retries until the message names the second initializer. The gate must refuse every try.
func (s *story) refused(ctx context.Context) (string, error) {
	return s.until(ctx, func() (string, error) {
		message, err := s.writeTooEarly(ctx)
		if err == nil {
			err = expect(nil, message, `initializer "`+approval+`"`)
		}
		return message, err
	})
}

// writeTooEarly writes as alice, and returns the message of the gate. Any other result is a final error.
func (s *story) writeTooEarly(ctx context.Context) (string, error) {
	_, err := s.kubectl(ctx, s.alice, "create", "configmap", "early", "--namespace", demoNamespace)
	if err == nil {
		return "", final{errors.New("the gate admitted alice's write while the namespace is initializing")}
	}
	_, message, _ := strings.Cut(err.Error(), "denied request: ")
	if !refusedBy(err, "nsinit-gate") || !strings.Contains(message, `namespace "`+demoNamespace+`" is being initialized`) {
		return "", final{fmt.Errorf("not the gate refused alice's write: %w", err)}
	}
	return message, nil
}

func (s *story) initializerWrites(ctx context.Context) (string, error) {
	const role = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"approver","namespace":"` + demoNamespace + `"},
"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["create","get"]}]}`
	if _, err := s.kubectlInput(ctx, s.AdminKubeconfig(), role, "apply", "-f", "-"); err != nil {
		return "", err
	}
	if _, err := s.Admin(ctx, "create", "rolebinding", "approver", "--role=approver", "--user=approver", "--namespace", demoNamespace); err != nil {
		return "", err
	}
	return s.kubectl(ctx, s.approver, "create", "configmap", "approval", "--from-literal=by=approver", "--namespace", demoNamespace)
}

func (s *story) systemObjects(ctx context.Context) (string, error) {
	return s.until(ctx, func() (string, error) {
		out, err := s.Admin(ctx, "get", "configmap/kube-root-ca.crt", "serviceaccount/default", "--namespace", demoNamespace, "-o", "name")
		if err == nil {
			err = s.stillClosed(ctx)
		}
		return strings.ReplaceAll(out, "\n", "  "), err
	})
}

func (s *story) visible(ctx context.Context) (string, error) {
	out, err := s.kubectl(ctx, s.alice, "get", "namespace", demoNamespace,
		"-o", `jsonpath={range .status.conditions[*]}{.type}={.status}: {.message}{"\n"}{end}`)
	return out, expect(err, out, "Initializing=True", "Ready=False", approval)
}

func (s *story) approve(ctx context.Context) (string, error) {
	if err := s.stillClosed(ctx); err != nil {
		return "", err
	}
	return s.approveIn(ctx, demoNamespace)
}

// approveIn reports that the second initializer, a person, is done.
func (s *story) approveIn(ctx context.Context, namespace string) (string, error) {
	return s.kubectl(ctx, s.approver, "nsinit", "done", namespace, approval)
}

func (s *story) ready(ctx context.Context) (string, error) {
	// kubectl wait needs list and watch, which alice may not use.
	out, err := s.Admin(ctx, "wait", "--for=condition=Ready", "namespace/"+demoNamespace, "--timeout=60s")
	return out + fmt.Sprintf("%.1f s after its creation", time.Since(s.created).Seconds()), err
}

func (s *story) written(ctx context.Context) (string, error) {
	return s.until(ctx, func() (string, error) {
		return s.kubectl(ctx, s.alice, "create", "configmap", "first", "--namespace", demoNamespace)
	})
}

// appliesAll applies a namespace and its content with one command, as alice.
func (s *story) appliesAll(ctx context.Context) (string, error) {
	const namespace = secondNamespace
	if err := s.AskToRetry(ctx); err != nil {
		return "", err
	}
	began := time.Now()
	type result struct {
		out string
		err error
	}
	applied := make(chan result, 1)
	go func() {
		out, err := s.kubectl(ctx, s.alice, "apply", "-f", filepath.Join(s.Root, "artifacts", "examples", "namespace-with-content.yaml"))
		applied <- result{out, err}
	}()
	if _, err := s.until(ctx, func() (string, error) {
		out, err := s.Admin(ctx, "get", "nsl", namespace)
		return out, expect(err, out, approval)
	}); err != nil {
		return "", err
	}
	if err := sleep(ctx, approvalTakes); err != nil {
		return "", err
	}
	if _, err := s.approveIn(ctx, namespace); err != nil {
		return "", err
	}
	r := <-applied
	return fmt.Sprintf("%safter %.1f s, %s of which an initializer took", r.out, time.Since(began).Seconds(), approvalTakes), expect(r.err, r.out, "namespace/bakery created", "configmap/recipes created")
}

func (s *story) deleted(ctx context.Context) (string, error) {
	if _, err := s.Admin(ctx, "delete", "namespace", demoNamespace, secondNamespace, "--timeout=60s"); err != nil {
		return "", err
	}
	return s.until(ctx, func() (string, error) {
		out, err := s.Admin(ctx, "get", "nsl", demoNamespace, secondNamespace, "--ignore-not-found")
		if err == nil && out != "" {
			err = fmt.Errorf("NamespaceLifecycles still exist: %s", out)
		}
		if err == nil {
			if out, err = s.indices(ctx); err == nil && out != "[]" {
				err = fmt.Errorf("the log store still has %s", out)
			}
		}
		return "none of them exists", err
	})
}

// stillClosed returns an error if the gate has opened too early.
func (s *story) stillClosed(ctx context.Context) error {
	out, err := s.Admin(ctx, "get", "namespace", demoNamespace, "-o", `jsonpath={.metadata.labels.nsinit\.dev/initializing}`)
	if err == nil && out != "true" {
		err = errors.New("the gate is open, but an initializer is pending")
	}
	return err
}

// until retries a step until it succeeds.
func (s *story) until(ctx context.Context, step func() (string, error)) (string, error) {
	var out string
	err := poll(ctx, settleLimit, 100*time.Millisecond, func() (err error) {
		out, err = step()
		return err
	})
	return out, err
}

// sleep waits, or returns the error of the context.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// expect returns an error unless a text contains every part.
func expect(err error, text string, parts ...string) error {
	if err != nil {
		return err
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("%q is missing in:\n%s", part, text)
		}
	}
	return nil
}
