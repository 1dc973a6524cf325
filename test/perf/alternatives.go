/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// alternative is another project that creates objects in new namespaces. It runs on a new control plane without nsinit.
type alternative struct {
	name string
	// folder is below the folder "alternatives". It has the go.mod that pins a version of the module, and the objects to create
	// before the programs start.
	folder, module string
	// definitions are the folders of the module with its CustomResourceDefinitions.
	definitions []string
	programs    []program
	// create creates a namespace that gets the objects of the namespace "source".
	create func(ctx context.Context, p *plane, name string) error
}

// program is a package of a module.
type program struct {
	path string
	// $KUBECONFIG in an argument is the administrator's kubeconfig, and $PKI the folder of the certificates.
	args []string
	// KUBECONFIG is set, too.
	env []string
}

const (
	source = "source"
	// burstOfAlternatives is the number of namespaces that are created at the same time.
	burstOfAlternatives = 60
	earlyFigure         = "early writes"
	beyondFigure        = "claims beyond the quota"
	// quotaOfClaims is how many PersistentVolumeClaims the quota of a namespace allows.
	quotaOfClaims = 10
)

// alternatives are measured with the settings of their releases, and with more workers and requests per second.
func alternatives() []alternative {
	return []alternative{
		hnc("HNC", "--max-reconciles=10", "--apiserver-qps-throttle=50"),
		hnc("HNC, tuned", "--max-reconciles=32", "--apiserver-qps-throttle=1000"),
		kyverno("Kyverno"),
		kyverno("Kyverno, tuned", "--genWorkers=32", "--clientRateLimitQPS=1000", "--clientRateLimitBurst=1000"),
		capsule("Capsule"),
		capsule("Capsule, tuned", "--workers=32", "--client-connection-qps=1000", "--client-connection-burst=1000"),
	}
}

// hnc copies objects to the subnamespaces of a namespace.
func hnc(name string, settings ...string) alternative {
	return alternative{
		name: name, folder: "hnc", module: "sigs.k8s.io/hierarchical-namespaces", definitions: []string{"config/crd/bases"},
		programs: []program{{path: "cmd/manager", args: append(settings, "--kubeconfig=$KUBECONFIG", "--no-webhooks", "--enable-stackdriver=false", "--metrics-addr=0",
			"--health-probe-bind-address=0", "--excluded-namespace=kube-system", "--excluded-namespace=kube-public", "--excluded-namespace=kube-node-lease")}},
		create: func(ctx context.Context, p *plane, name string) error {
			anchor := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "SubnamespaceAnchor"}}
			anchor.SetName(name)
			_, err := p.dynamic.Resource(schema.GroupVersionResource{Group: "hnc.x-k8s.io", Version: "v1alpha2", Resource: "subnamespaceanchors"}).
				Namespace(source).Create(ctx, anchor, metav1.CreateOptions{})
			return err
		},
	}
}

// kyverno copies objects to the namespaces that its webhook sees.
func kyverno(name string, settings ...string) alternative {
	environment := func(name string) []string {
		return []string{"KYVERNO_NAMESPACE=kyverno", "INIT_CONFIG=kyverno", "METRICS_CONFIG=kyverno-metrics", "KYVERNO_SVC=kyverno-svc",
			"KYVERNO_SERVICEACCOUNT_NAME=" + name, "KYVERNO_DEPLOYMENT=" + name, "KYVERNO_POD_NAME=" + name}
	}
	return alternative{
		name: name, folder: "kyverno", module: "github.com/kyverno/kyverno",
		definitions: []string{"config/crds/kyverno", "config/crds/policies.kyverno.io", "config/crds/policyreport", "config/crds/reports"},
		programs: []program{
			{path: "cmd/kyverno", env: environment("kyverno-admission-controller"), args: []string{
				"--kubeconfig=$KUBECONFIG", "--serverIP=127.0.0.1:9443", "--caSecretName=ca", "--tlsSecretName=tls", "--disableMetrics", "--controllerRuntimeMetricsAddress=0",
				"--backgroundServiceAccountName=system:serviceaccount:kyverno:kyverno-background-controller", "--admissionReports=false"}},
			{path: "cmd/background-controller", env: environment("kyverno-background-controller"), args: append(settings, "--kubeconfig=$KUBECONFIG", "--metricsPort=8001",
				"--disableMetrics", "--controllerRuntimeMetricsAddress=0", "--enableReporting=")},
		},
		create: func(ctx context.Context, p *plane, name string) error { return p.createNamespace(ctx, name) },
	}
}

// capsule creates objects in the namespaces of a tenant. Without its webhooks, the client says to which tenant a namespace belongs.
func capsule(name string, settings ...string) alternative {
	resource := schema.GroupVersionResource{Group: "capsule.clastix.io", Version: "v1beta2", Resource: "tenants"}
	return alternative{
		name: name, folder: "capsule", module: "github.com/projectcapsule/capsule", definitions: []string{"charts/capsule/crds"},
		programs: []program{{path: "cmd/controller", env: []string{"NAMESPACE=default", "SERVICE_ACCOUNT=capsule"},
			args: append(settings, "--metrics-addr=0", "--webhook-cert-path=$PKI", "--webhook-cert-name=kube-apiserver.crt", "--webhook-cert-key=kube-apiserver.key")}},
		create: func(ctx context.Context, p *plane, name string) error {
			owner, err := p.dynamic.Resource(resource).Get(ctx, source, metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, err = p.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"capsule.clastix.io/tenant": source},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())},
			}}, metav1.CreateOptions{})
			return err
		},
	}
}

// contentSigns are the objects of populate.
func contentSigns() []sign {
	return []sign{
		{"rolebindings.rbac.authorization.k8s.io", content}, {"resourcequotas", content}, {"limitranges", content},
		{"networkpolicies.networking.k8s.io", content},
	}
}

// arm measures an alternative.
func (a alternative) arm() arm {
	return arm{name: a.name, fresh: true, measure: func(ctx context.Context, p *plane, prefix string) (map[string]float64, error) {
		if err := a.start(ctx, p); err != nil {
			return nil, err
		}
		create := func(ctx context.Context, name string) error { return a.create(ctx, p, name) }
		if err := p.untilPopulated(ctx, prefix+"-first", create); err != nil {
			return nil, err
		}
		if _, _, err := p.burstOf(ctx, prefix+"-warm", 5, 1, contentSigns(), create); err != nil {
			return nil, err
		}
		var times []float64
		var all float64
		figures, err := p.measured(ctx, burstOfAlternatives, func() (err error) {
			times, all, err = p.burstOf(ctx, prefix, burstOfAlternatives, clients, contentSigns(), create)
			return err
		})
		if err != nil {
			return nil, err
		}
		addTimes(figures, times, all)
		return figures, p.probe(ctx, figures, prefix+"-probed", contentSigns(), create)
	}}
}

// untilPopulated creates namespaces until one has every object after ten seconds: those that it creates before the programs
// watch may get none.
func (p *plane) untilPopulated(ctx context.Context, prefix string, create func(ctx context.Context, name string) error) error {
	const attempts = 12
	var last error
	for n := range attempts {
		name := fmt.Sprintf("%s-%d", prefix, n)
		if err := create(ctx, name); err != nil {
			return err
		}
		if last = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
			missing, err := p.missing(ctx, name, contentSigns())
			return !missing, err
		}); last == nil {
			return nil
		}
	}
	return fmt.Errorf("none of %d namespaces gets every object: %w", attempts, last)
}

// missing says whether a sign is missing in a namespace.
func (p *plane) missing(ctx context.Context, namespace string, signs []sign) (bool, error) {
	for _, s := range signs {
		_, err := s.resources(p.dynamic).Namespace(namespace).Get(ctx, s.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// start builds the programs, and starts them on a control plane with the objects that they need.
func (a alternative) start(ctx context.Context, p *plane) error {
	folder := filepath.Join(p.Root, "test", "perf", "alternatives", a.folder)
	programs := filepath.Join(p.Root, "_output", "alternatives", a.folder)
	run := func(args ...string) (string, error) {
		command := exec.CommandContext(ctx, "go", args...)
		command.Dir, command.Stderr, command.Env = folder, os.Stderr, append(os.Environ(), "GOFLAGS=-buildvcs=false -trimpath", "CGO_ENABLED=0")
		output, err := command.Output()
		if err != nil {
			return "", fmt.Errorf("%s: %w", command, err)
		}
		return strings.TrimSpace(string(output)), nil
	}
	module, err := run("list", "-m", "-f", "{{.Dir}}", a.module)
	if err != nil {
		return err
	}
	if err := p.populate(ctx, source); err != nil {
		return err
	}
	for _, definitions := range a.definitions {
		if _, err := p.Admin(ctx, "apply", "--server-side", "-f", filepath.Join(module, definitions)); err != nil {
			return err
		}
	}
	if _, err := p.Admin(ctx, "wait", "--for=condition=Established", "crd", "--all"); err != nil {
		return err
	}
	if _, err := p.Admin(ctx, "apply", "-f", filepath.Join(folder, "objects.yaml")); err != nil {
		return err
	}
	for _, one := range a.programs {
		file := filepath.Join(programs, path.Base(one.path))
		fmt.Println("  building", path.Base(one.path))
		if _, err := run("build", "-o", file, a.module+"/"+one.path); err != nil {
			return err
		}
		var args []string
		for _, arg := range one.args {
			args = append(args, os.Expand(arg, func(name string) string {
				return map[string]string{"KUBECONFIG": p.AdminKubeconfig(), "PKI": p.PKI().Dir}[name]
			}))
		}
		if err := p.startHelperWith(ctx, append(one.env, "KUBECONFIG="+p.AdminKubeconfig()), path.Base(one.path), file, args...); err != nil {
			return err
		}
	}
	return nil
}

// populatedFor measures the same with nsinit.
func populatedFor(ctx context.Context, p *plane, prefix string) (map[string]float64, error) {
	figures, err := populated(burstOfAlternatives)(ctx, p, prefix)
	if err != nil {
		return nil, err
	}
	if _, err := p.Admin(ctx, "create", "clusterrole", "create-namespaces", "--verb=create", "--resource=namespaces"); err != nil {
		return nil, err
	}
	if _, err := p.Admin(ctx, "create", "clusterrolebinding", "create-namespaces", "--clusterrole=create-namespaces", "--user="+tenant); err != nil {
		return nil, err
	}
	if _, err := p.Admin(ctx, "apply", "-f", p.example()); err != nil {
		return nil, err
	}
	user := p.tenant()
	return figures, p.probe(ctx, figures, prefix+"-probed", []sign{
		{"rolebindings.rbac.authorization.k8s.io", "namespace-admin"}, {"resourcequotas", "default"}, {"limitranges", "default"},
		{"networkpolicies.networking.k8s.io", "default-deny"},
	}, func(ctx context.Context, name string) error {
		_, err := user.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
}

// tenant returns a client of the tenant.
func (p *plane) tenant() kubernetes.Interface {
	config := rest.CopyConfig(p.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: tenant, Groups: []string{"system:authenticated"}}
	return kubernetes.NewForConfigOrDie(config)
}

// probe sets in how many of 20 new namespaces the user of the RoleBinding could write before every sign appeared, and how many
// PersistentVolumeClaims beyond their quotas this user could store in 20 others.
func (p *plane) probe(ctx context.Context, figures map[string]float64, prefix string, signs []sign, create func(ctx context.Context, name string) error) error {
	const count = 20
	user := p.tenant()
	// after acts as soon as the user can write.
	after := func(prefix string, act func(ctx context.Context, name string) error) error {
		_, _, err := p.burstOf(ctx, prefix, count, count, signs, func(ctx context.Context, name string) error {
			if err := create(ctx, name); err != nil {
				return err
			}
			if err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(ctx context.Context) (bool, error) {
				_, err := user.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "early"}}, metav1.CreateOptions{})
				return err == nil, nil
			}); err != nil {
				return err
			}
			return act(ctx, name)
		})
		return err
	}
	var early, beyond atomic.Int64
	if err := after(prefix, func(ctx context.Context, name string) error {
		missing, err := p.missing(ctx, name, signs)
		if missing {
			early.Add(1)
		}
		return err
	}); err != nil {
		return err
	}
	err := after(prefix+"-claims", func(ctx context.Context, name string) error {
		stored, err := p.claim(ctx, user, name)
		beyond.Add(int64(max(0, stored-quotaOfClaims)))
		return err
	})
	figures[earlyFigure], figures[beyondFigure] = float64(early.Load()), float64(beyond.Load())
	return err
}

// claim creates PersistentVolumeClaims until the quota refuses one, and returns how many were stored.
func (p *plane) claim(ctx context.Context, user kubernetes.Interface, namespace string) (stored int, err error) {
	for range 60 {
		_, err = user.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "claim-"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}, metav1.CreateOptions{})
		switch {
		case err == nil:
			stored++
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
			return stored, nil
		case !apierrors.IsConflict(err): // another client wrote the status of the quota
			return stored, err
		}
	}
	return stored, nil
}
