//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package packaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// installation is an installation of overlays/embedded by the commands of docs/install.md.
type installation struct {
	*framework.Cluster
	node  *framework.Node
	words map[string]string
}

// newInstallation prepares the installation of an overlay on Kubernetes: a node, and the service of nsinit-apiserver. more
// continues the patches of the overlay. images are folders of programs, beside those of nsinit:dev.
func newInstallation(t *testing.T, overlay, more string, images map[string]string) *installation {
	t.Helper()
	i := &installation{Cluster: framework.Another(t, "--only-kube")}
	i.provisions(t)
	all := map[string]string{"nsinit:dev": framework.BinDir()}
	maps.Copy(all, images)
	i.node = i.StartNode(t, all)
	i.Balance(t, func() []string { return i.node.Addresses("nsinit-apiserver") })
	i.words = map[string]string{overlayEmbedded: i.Overlay(t, overlay, more)}
	return i
}

// provisions creates a default StorageClass, as most clusters have one. The node provides the volumes.
func (i *installation) provisions(t *testing.T) {
	t.Helper()
	if _, err := i.Core.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// documents runs the commands under a heading of docs/install.md.
func (i *installation) documents(t *testing.T, heading string) {
	t.Helper()
	for _, commands := range i.Documented(t, framework.InstallGuide, heading) {
		if out, err := i.Shell(t, commands, i.words); err != nil {
			t.Fatalf("%s\n%v\n%s", commands, err, out)
		}
	}
}

const (
	overlayEmbedded = "artifacts/deploy/overlays/embedded"
	certManager     = "github.com/cert-manager/cert-manager"
	nextVersion     = "v0.1.99"

	// requestTimeout is how long an API server works on a request.
	requestTimeout = time.Minute
)

// TestExamples: the examples apply as they are.
func TestExamples(t *testing.T) {
	c := framework.Connect(t)
	examples, err := filepath.Glob(filepath.Join(c.Root, "artifacts", "examples", "*.yaml"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("%d examples, %v", len(examples), err)
	}
	// A dry run of the content needs the namespace of the example.
	const brought = "bakery"
	if _, err := c.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: brought}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Core.CoreV1().Namespaces().Delete(context.Background(), brought, metav1.DeleteOptions{}) })
	c.WaitReady(t, brought)
	for _, example := range examples {
		if _, err := c.Kubectl("apply", "--dry-run=server", "-f", example); err != nil {
			t.Error(err)
		}
	}
}

// TestInstallation installs nsinit as docs/install.md says, works with it, upgrades it, and
// uninstalls it as docs/uninstall.md says. The pods run with the rights of their service accounts.
func TestInstallation(t *testing.T) {
	framework.DependsOnKubernetes(t)
	next := t.TempDir()
	i := newInstallation(t, "embedded", "", map[string]string{"nsinit:" + nextVersion: next})
	build := exec.CommandContext(t.Context(), "nice", "-n", "19", filepath.Join(i.Root, "hack", "build.sh"), next, "./cmd/nsinit-apiserver", "./cmd/nsinit-controller-manager", "./cmd/policy-population")
	build.Env = append(os.Environ(), "VERSION="+nextVersion)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	old := i.newNamespace(t)

	t.Run("before", i.before)
	if !t.Run("install", i.install) {
		return
	}
	if i.IsClosed(t, old) {
		t.Error("a namespace that existed before is closed")
	}
	t.Run("what is delivered", i.delivered)
	t.Run("work", i.work)
	t.Run("outage", i.outage)
	t.Run("back up and restore", i.restore)
	t.Run("upgrade", i.upgrade)
	t.Run("move the storage", func(move *testing.T) { i.move(move, t) })
	t.Run("uninstall", i.uninstall)
	i.documents(t, "Check the cluster") // nothing is left
}

// obstacles block an installation, or harm it: a webhook that does not answer, a policy that refuses what nsinit writes, and a kind
// in the group of nsinit.
const obstacles = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: e2e-down}
webhooks:
- name: down.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 1
  clientConfig: {service: {namespace: default, name: missing}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces, namespaces/status]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-no-leases}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [coordination.k8s.io], apiVersions: ["*"], operations: [UPDATE], resources: ["*"]}]
  validations: [{expression: "!request.userInfo.username.startsWith('system:serviceaccount:nsinit-system:')"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: e2e-no-leases}
spec: {policyName: e2e-no-leases, validationActions: [Deny]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: others.nsinit.dev
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: nsinit.dev
  names: {kind: Other, plural: others}
  scope: Cluster
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// before checks the cluster before the installation as docs/install.md says: without obstacles, with them, and without permissions.
func (i *installation) before(t *testing.T) {
	i.documents(t, "Check the cluster")
	out, err := i.Kubectl("create", "serviceaccount", "stranger")
	if err != nil {
		t.Fatal(err, out)
	}
	if out, _, code := i.Plugin(t, "check", "--pre", "--as=system:serviceaccount:default:stranger"); code != 3 || !strings.Contains(out, "Permissions     Problem   you may not create namespaces, patch namespaces, ") || !strings.Contains(out, "not checked: ") {
		t.Errorf("without permissions: exit code %d\n%s", code, out)
	}
	t.Run("obstacles", func(t *testing.T) {
		i.ApplyInput(t, obstacles)
		framework.Eventually(t, "each obstacle is found", func(context.Context) error {
			out, _, code := i.Plugin(t, "check", "--pre")
			for _, want := range []string{
				`Webhooks        Problem   webhook "down.example.com" of validatingwebhookconfiguration/e2e-down has failurePolicy Fail for UPDATE of namespaces/status, UPDATE of namespaces: its service default/missing does not exist`,
				`OtherPolicies   Warning   validatingadmissionpolicy/e2e-no-leases applies to UPDATE of leases`,
				`APIServices     Problem   APIService v1alpha1.nsinit.dev exists, because CustomResourceDefinitions`,
				`Namespace       Problem   no namespace nsinit-system can be created: `,
			} {
				if !strings.Contains(out, want) {
					return fmt.Errorf("exit code %d, and no %q in\n%s", code, want, out)
				}
			}
			return nil
		})
	})
	// The APIService of a kind is deleted after the kind.
	framework.Eventually(t, "nothing blocks the installation", func(context.Context) error {
		if out, _, code := i.Plugin(t, "check", "--pre"); code != 0 {
			return fmt.Errorf("exit code %d\n%s", code, out)
		}
		return nil
	})
}

// newNamespace creates a namespace that outlives the test. If the stamp is a webhook, nsinit-apiserver has to run.
func (i *installation) newNamespace(t *testing.T) string {
	t.Helper()
	name := framework.UniqueName("ns")
	create := func(ctx context.Context) error {
		_, err := i.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if !i.StampsByPolicy(t) {
		framework.Eventually(t, "a namespace can be created", create)
	} else if err := create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return name
}

// planned creates namespaces until one gets an initializer that was registered just now.
func (i *installation) planned(t *testing.T, initializer string) (namespace string) {
	t.Helper()
	framework.Eventually(t, "a new namespace gets "+initializer, func(context.Context) error {
		namespace = i.newNamespace(t)
		if plan := i.plan(t, namespace); !slices.Contains(plan, initializer) {
			return fmt.Errorf("its plan is %v", plan)
		}
		return nil
	})
	return namespace
}

// plan returns the names in the plan of a namespace, once it has one.
func (i *installation) plan(t *testing.T, namespace string) (names []string) {
	t.Helper()
	var lifecycle *v1alpha1.NamespaceLifecycle
	framework.Eventually(t, "it has a plan", func(ctx context.Context) (err error) {
		lifecycle, err = i.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
		return err
	})
	for _, entry := range lifecycle.Spec.Plan {
		names = append(names, entry.Name)
	}
	return names
}

// unregister deletes a configuration, and waits until new namespaces do not get its initializer. The configuration itself
// stays longer.
func (i *installation) unregister(t *testing.T, configuration, initializer string) {
	t.Helper()
	if out, err := i.Kubectl("delete", "nsic", configuration, "--wait=false"); err != nil {
		t.Fatal(err, out)
	}
	framework.Eventually(t, "a new namespace does not get "+initializer, func(context.Context) error {
		namespace := i.newNamespace(t)
		if slices.Contains(i.plan(t, namespace), initializer) {
			i.DeleteNamespace(t, namespace)
			return errors.New("it does")
		}
		return nil
	})
}

// wrongImage is a part of an overlay: an image that does not exist.
const wrongImage = "images: [{name: nsinit, newTag: wrong}]\n"

// applyWrongImage installs an image that does not exist, and waits until nsinit-apiserver cannot start.
func (i *installation) applyWrongImage(t *testing.T) {
	t.Helper()
	if out, err := i.Kubectl("apply", "--server-side", "-k", i.Overlay(t, "embedded", wrongImage)); err != nil {
		t.Fatal(err, out)
	}
	i.waitPending(t)
}

// waitPending waits until a pod of nsinit-apiserver cannot start.
func (i *installation) waitPending(t *testing.T) {
	t.Helper()
	framework.Eventually(t, "a pod of nsinit-apiserver cannot start", func(ctx context.Context) error {
		pods, err := i.Core.CoreV1().Pods("nsinit-system").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=nsinit-apiserver"})
		if err == nil && !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Status.Phase == corev1.PodPending && len(pod.Status.ContainerStatuses) > 0
		}) {
			err = fmt.Errorf("they are %s", framework.JSON(t, pods.Items))
		}
		return err
	})
}

// harmless checks that an installation that does not work leaves namespaces as they are.
func (i *installation) harmless(t *testing.T) {
	t.Helper()
	namespace := i.newNamespace(t)
	if i.IsClosed(t, namespace) {
		t.Error("a new namespace is closed")
	}
	if err := framework.WriteConfigMap(t.Context(), i.Core, namespace); err != nil {
		t.Errorf("a write: %v", err)
	}
	i.DeleteNamespace(t, namespace)
	i.WaitNoNamespace(t, namespace)
	if _, err := aggregator.NewForConfigOrDie(i.Admin).ApiregistrationV1().APIServices().Get(t.Context(), framework.APIService, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the APIService: %v", err)
	}
}

// What an installation can lack, and the form that is no overlay.
const noImage, noCertificate, noEtcd, chart = "no image", "no certificate", "no etcd", "chart"

// TestFailedInstallation: an installation whose programs get no certificate, or whose nsinit-apiserver reaches no etcd, leaves
// namespaces as they are. kubectl nsinit check says so, and an event, if nsinit-controller-manager runs.
func TestFailedInstallation(t *testing.T) {
	framework.DependsOnKubernetes(t)
	i := newInstallation(t, "embedded", "", nil)
	i.applyKindsOf(t, "test/certmanager", certManager, "deploy/crds")
	i.fails(t, noCertificate, "embedded-cert-manager", "")
	i.fails(t, noEtcd, "ha", "")
}

// TestFailedForms: each form of an installation can fail in these ways, too, and with an image that does not exist.
func TestFailedForms(t *testing.T) {
	i := newInstallation(t, "embedded", "", nil)
	i.Build(t, "test/gitops", "helm", "helm.sh/helm/v4/cmd/helm")
	i.applyKindsOf(t, "test/certmanager", certManager, "deploy/crds")
	i.fails(t, noImage, "embedded", wrongImage)
	i.fails(t, noImage, "ha", wrongImage)
	i.fails(t, noImage, chart, "image.tag=wrong")
	i.fails(t, noCertificate, "ha-cert-manager", "")
	i.fails(t, noCertificate, chart, "certManager=true")
	i.fails(t, noEtcd, chart, "storage=etcd")
}

// fails installs a form that lacks something with a part of an overlay, or with a value of the chart, and uninstalls it.
func (i *installation) fails(t *testing.T, lacks, form, with string) {
	t.Helper()
	t.Run(lacks+" "+form, func(t *testing.T) {
		install := "helm install nsinit artifacts/helm/nsinit --namespace nsinit-system --create-namespace --set=image.tag=dev," + with
		uninstall := "helm uninstall nsinit --namespace nsinit-system && kubectl delete namespace nsinit-system"
		if form != chart {
			dir := i.Overlay(t, form, with)
			install, uninstall = "kubectl apply --server-side -k "+dir, "kubectl delete --ignore-not-found -k "+dir // some go with their namespace
		}
		defer func() {
			if out, err := i.Shell(t, uninstall, nil); err != nil {
				t.Errorf("%s\n%v\n%s", uninstall, err, out)
			}
		}()
		// Events of the form before would show nothing.
		if out, err := i.Kubectl("delete", "events", "--namespace=default", "--field-selector=reason=GateNotInForce"); err != nil {
			t.Fatal(err, out)
		}
		if out, err := i.Shell(t, install, nil); err != nil {
			t.Fatalf("%s\n%v\n%s", install, err, out)
		}
		if i.waitPending(t); lacks == noEtcd {
			i.waitNoEtcd(t)
		}
		i.harmless(t)
		if out, _, code := i.Plugin(t, "check"); code != 3 || !strings.Contains(out, "APIService v1alpha1.nsinit.dev does not exist") {
			t.Errorf("check: exit code %d\n%s", code, out)
		}
	})
}

// waitNoEtcd gives nsinit-apiserver a client certificate, and waits until an event says that no pod is ready.
func (i *installation) waitNoEtcd(t *testing.T) {
	t.Helper()
	if out, err := i.Kubectl("-n", "nsinit-system", "create", "secret", "generic", "nsinit-etcd-client", "--from-file=ca.crt="+filepath.Join(i.Dir, "pki", "etcd-ca.crt"),
		"--from-file=tls.crt="+filepath.Join(i.Dir, "pki", "etcd.crt"), "--from-file=tls.key="+filepath.Join(i.Dir, "pki", "etcd.key")); err != nil {
		t.Fatal(err, out)
	}
	framework.Eventually(t, "nsinit-apiserver runs, and is not ready", func(ctx context.Context) error {
		pods, err := i.Core.CoreV1().Pods("nsinit-system").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=nsinit-apiserver"})
		if err == nil && !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) > 0 && (pod.Status.ContainerStatuses[0].State.Running != nil || pod.Status.ContainerStatuses[0].RestartCount > 0)
		}) {
			err = fmt.Errorf("they are %s", framework.JSON(t, pods.Items))
		}
		return err
	})
	framework.Eventually(t, "an event says why namespaces are not closed", func(ctx context.Context) error {
		events, err := i.Core.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "reason=GateNotInForce"})
		if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "no pod of nsinit-apiserver is ready") }) {
			err = fmt.Errorf("the events are %s", framework.JSON(t, events.Items))
		}
		return err
	})
}

func (i *installation) install(t *testing.T) {
	// A wrong image is corrected by installing again.
	i.applyWrongImage(t)
	i.harmless(t)
	i.documents(t, "Install")
	if out, err := i.Shell(t, "kubectl nsinit check", nil); err != nil {
		t.Errorf("kubectl nsinit check: %v\n%s", err, out)
	} else {
		t.Log("\n" + out)
	}
	service, err := aggregator.NewForConfigOrDie(i.Admin).ApiregistrationV1().APIServices().Get(t.Context(), framework.APIService, metav1.GetOptions{})
	if err != nil || len(service.Spec.CABundle) == 0 || service.Spec.InsecureSkipTLSVerify {
		t.Errorf("the APIService trusts %q, insecureSkipTLSVerify=%v, %v", service.Spec.CABundle, service.Spec.InsecureSkipTLSVerify, err)
	}
	// Applying the same manifests again does not change the objects of the programs.
	i.documents(t, "Install")
	again, err := aggregator.NewForConfigOrDie(i.Admin).ApiregistrationV1().APIServices().Get(t.Context(), framework.APIService, metav1.GetOptions{})
	if err != nil || string(again.Spec.CABundle) != string(service.Spec.CABundle) {
		t.Errorf("applied again, the APIService trusts %q, %v", again.Spec.CABundle, err)
	}
}

// work initializes a namespace, and checks its contents.
func (i *installation) work(t *testing.T) {
	i.documents(t, "Register an initializer")
	i.waitReadyPods(t)
	tenant := i.Tenant(t)
	namespace := i.planned(t, "policy-population.nsinit.dev")
	i.WaitReady(t, namespace)
	if quotas, err := i.Core.CoreV1().ResourceQuotas(namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(quotas.Items) == 0 {
		t.Errorf("policy-population has put no ResourceQuota into it: %v", err)
	}
	framework.WaitWrite(t, tenant, namespace)
	i.DeleteNamespace(t, namespace)
	i.WaitNoNamespace(t, namespace)
}

func (i *installation) waitReadyPods(t *testing.T) {
	t.Helper()
	i.node.WaitReady(t, "nsinit-apiserver", 1)
	i.node.WaitReady(t, "nsinit-controller-manager", 2)
}

// delivered checks every overlay: kube-apiserver accepts it, with the kinds of cert-manager and of the Prometheus
// operator as they are released, and the programs have the least rights on their node.
func (i *installation) delivered(t *testing.T) {
	i.applyKindsOf(t, "test/certmanager", certManager, "deploy/crds")
	i.applyKindsOf(t, ".", "github.com/prometheus-operator/prometheus-operator@v0.85.0", "example/prometheus-operator-crd")
	workloads := 0
	for _, name := range []string{"embedded", "ha", "embedded-cert-manager", "ha-cert-manager"} {
		dir := i.Overlay(t, name, "", "../../components/service-monitor", "../../components/strict-name-reuse")
		manifests, err := i.Kubectl("kustomize", dir)
		if err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "kubectl validates "+name, func(context.Context) error {
			_, err := i.Kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", dir)
			if err != nil && strings.Contains(err.Error(), "failed to download openapi") {
				return err // kube-apiserver is still adding the kinds to it
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		})
		makes := strings.Contains(manifests, "- --certificates\n")
		if cm := strings.HasSuffix(name, "cert-manager"); makes == cm || strings.Contains(manifests, "nsinit:certificates") == cm {
			t.Errorf("%s: --certificates is %v, or the rights to certificates do not follow", name, makes)
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
		for {
			var object unstructured.Unstructured
			if err := decoder.Decode(&object); err != nil {
				break // the end: kubectl has parsed all of it before
			}
			if kind := object.GetKind(); kind == "Deployment" || kind == "StatefulSet" {
				workloads++
				var workload appsv1.Deployment
				data, err := object.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(data, &workload); err != nil {
					t.Fatal(err)
				}
				checkPod(t, name+" "+object.GetName(), workload.Spec.Template.Spec)
			}
		}
	}
	if workloads != 12 {
		t.Errorf("there are %d workloads, want 3 in each of 4 overlays", workloads)
	}
}

// applyKindsOf applies the CustomResourceDefinitions of a Go module, of the given version or of that in a module of
// this repository.
func (i *installation) applyKindsOf(t *testing.T, by, module, folder string) {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	download.Dir = filepath.Join(i.Root, by)
	out, err := download.Output()
	var downloaded struct{ Dir string }
	if err := errors.Join(err, json.Unmarshal(out, &downloaded)); err != nil {
		t.Fatalf("%s: %v", module, err)
	}
	if out, err := i.Kubectl("apply", "--server-side", "-f", filepath.Join(downloaded.Dir, folder)); err != nil {
		t.Fatalf("%s: %v\n%s", module, err, out)
	}
}

func checkPod(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot ||
		s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: the pod's security context is %v", name, s)
	}
	if pod.PriorityClassName == "" {
		t.Errorf("%s: there is no priority class", name)
	}
	for i, container := range slices.Concat(pod.Containers, pod.InitContainers) {
		for _, arg := range container.Args {
			value, is := strings.CutPrefix(arg, "--shutdown-delay-duration=")
			if !is {
				continue
			}
			delay, err := time.ParseDuration(value)
			if grace := time.Duration(ptr.Deref(pod.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second; err != nil || grace < delay+requestTimeout {
				t.Errorf("%s: it is killed after %s, while it answers for %s and what it has accepted for up to %s more: %v", name, grace, value, requestTimeout, err)
			}
		}
		s := container.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || len(s.Capabilities.Drop) != 1 {
			t.Errorf("%s: the container's security context is %v", name, s)
		}
		probed := container.LivenessProbe != nil && container.ReadinessProbe != nil
		if sidecar := i >= len(pod.Containers); !probed && !sidecar || container.Resources.Requests.Memory().IsZero() {
			t.Errorf("%s: probes or resources of %s are missing", name, container.Name)
		}
	}
}

// scale sets the number of replicas of nsinit-apiserver.
func (i *installation) scale(t *testing.T, replicas string) {
	t.Helper()
	if out, err := i.Kubectl("-n", "nsinit-system", "scale", "statefulset/nsinit-apiserver", "--replicas="+replicas); err != nil {
		t.Fatal(err, out)
	}
}

// outage: while nsinit-apiserver does not run, Kubernetes removes namespaces without participants, also after restarts of kube-apiserver
// and kube-controller-manager. A namespace with a participant stays until the participant has cleaned up.
func (i *installation) outage(t *testing.T) {
	first, second := i.planned(t, "policy-population.nsinit.dev"), i.planned(t, "policy-population.nsinit.dev")
	i.WaitReady(t, first)
	i.WaitReady(t, second)
	configuration := i.Configure(t, v1alpha1.RegisteredInitializer{Name: framework.Participant, Finalizer: true})
	held, closed := i.planned(t, framework.Participant), i.planned(t, framework.Participant)
	for _, namespace := range []string{held, closed} {
		i.WaitCurrent(t, namespace, framework.Participant)
	}
	i.RemoveFirst(t, held)
	i.WaitReady(t, held)
	i.unregister(t, configuration.Name, framework.Participant)

	i.scale(t, "0")
	if out, err := i.Kubectl("-n", "nsinit-system", "wait", "--for=delete", "pod/nsinit-apiserver-0", "--timeout="+framework.Patience.String()); err != nil {
		t.Fatal(err, out)
	}
	began := time.Now()
	i.DeleteNamespace(t, first)
	i.DeleteNamespace(t, held)
	i.WaitNoNamespace(t, first)
	t.Logf("Kubernetes removed a namespace %.0f s after nsinit-apiserver had stopped", time.Since(began).Seconds())
	i.WaitWhy(t, closed, diagnosis.NsinitUnavailable, diagnosis.Stuck)
	for _, program := range []string{"kube-apiserver", "kube-controller-manager"} {
		i.Dev(t, "kill", program)
		i.Dev(t, "start", program)
	}
	framework.Eventually(t, "kube-apiserver deletes a namespace", func(ctx context.Context) error {
		return i.Core.CoreV1().Namespaces().Delete(ctx, second, metav1.DeleteOptions{})
	})
	i.WaitNoNamespace(t, second)
	// Kubernetes can have removed the namespaces before, by what it remembered of the API.
	framework.Eventually(t, "the API is not registered, and a write into a closed namespace is refused", func(ctx context.Context) error {
		return framework.RefusedBy("nsinit-gate", framework.WriteConfigMap(ctx, i.Tenant(t), closed), "its API is not registered")
	})
	if namespace, err := i.Core.CoreV1().Namespaces().Get(t.Context(), held, metav1.GetOptions{}); err != nil || !slices.Contains(namespace.Finalizers, v1alpha1.NamespaceFinalizer) {
		t.Errorf("the namespace with a participant: %v, %v", namespace.Finalizers, err)
	}

	i.scale(t, "1")
	i.ReleaseParticipant(t, held, framework.Participant)
	i.WaitNoNamespace(t, held)
	i.RemoveFirst(t, closed)
	i.WaitReady(t, closed)
}

// restore restores a snapshot. The saved objects exist again. A namespace that was closed later starts from the
// beginning, and no namespace opens early.
func (i *installation) restore(t *testing.T) {
	configurations := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	configure := func(name string) {
		t.Helper()
		if _, err := configurations.Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: framework.Initializers(name + ".example.com"),
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The commands of the pod run here as a process, on the volume of the pod.
	volume := filepath.Join(i.node.Dir, "data-nsinit-apiserver-0")
	snapshot := filepath.Join(t.TempDir(), "nsinit.db")
	storage := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), filepath.Join(framework.BinDir(), "nsinit-apiserver"), append([]string{"storage", "--embedded-etcd-dir=" + volume + "/etcd"}, args...)...)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	configure("kept")
	storage("recover")
	storage("save", snapshot)
	configure("lost")
	waiting := i.planned(t, "kept.example.com")
	i.WaitCurrent(t, waiting, "kept.example.com")

	i.scale(t, "0")
	if out, err := i.Kubectl("-n", "nsinit-system", "wait", "--for=delete", "pod/nsinit-apiserver-0", "--timeout="+framework.Patience.String()); err != nil {
		t.Fatal(err, out)
	}
	if err := os.RemoveAll(volume); err != nil {
		t.Fatal(err)
	}
	storage("restore", snapshot)
	i.scale(t, "1")
	i.node.WaitReady(t, "nsinit-apiserver", 1)
	framework.Eventually(t, "the saved objects exist again", func(ctx context.Context) error {
		_, err := configurations.Get(ctx, "kept", metav1.GetOptions{})
		return err
	})
	if _, err := configurations.Get(t.Context(), "lost", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what came after the snapshot: %v", err)
	}
	i.WaitCurrent(t, waiting, "kept.example.com")
	if !i.IsClosed(t, waiting) {
		t.Error("the namespace has opened")
	}
	i.RemoveFirst(t, waiting)
	i.WaitReady(t, waiting)
	i.unregister(t, "kept", "kept.example.com")
}

// closedTo checks that a tenant cannot write into a namespace. The tenant is asked to retry, and does not.
func (i *installation) closedTo(t *testing.T, tenant kubernetes.Interface, namespace string) {
	t.Helper()
	err := tenant.CoreV1().RESTClient().Post().Namespace(namespace).Resource("configmaps").MaxRetries(0).
		Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}).Do(t.Context()).Error()
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("a write into %s, which is closed: %v", namespace, err)
	}
}

// upgrade installs another version, while one namespace waits and another one is open.
func (i *installation) upgrade(t *testing.T) {
	if _, err := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "upgrade"}, Initializers: framework.Initializers("slow.example.com"),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tenant := i.Tenant(t)
	waiting := i.planned(t, "slow.example.com")
	before := i.WaitCurrent(t, waiting, "slow.example.com")

	// An upgrade that fails opens nothing.
	i.applyWrongImage(t)
	if err := framework.RefusedBy("nsinit-gate", framework.WriteConfigMap(t.Context(), tenant, waiting)); err != nil {
		t.Errorf("a write into a closed namespace: %v", err)
	}
	if i.StampsByPolicy(t) { // else nsinit-apiserver stamps
		created := i.newNamespace(t)
		if !i.IsClosed(t, created) {
			t.Error("a namespace that was created after an upgrade failed is open")
		}
		i.DeleteNamespace(t, created)
	}

	i.words[overlayEmbedded] = i.Overlay(t, "embedded", "images: [{name: nsinit, newTag: "+nextVersion+"}]\n")
	i.documents(t, "Install")
	for _, app := range []string{"nsinit-apiserver", "nsinit-controller-manager", "policy-population"} {
		for _, p := range i.node.Running(app) {
			if image := p.Object.Spec.Containers[0].Image; image != "nsinit:"+nextVersion && p.Object.DeletionTimestamp == nil {
				framework.Eventually(t, p.Object.Name+" has ended", func(context.Context) error {
					if slices.Contains(i.node.Running(app), p) {
						return errors.New("it runs with " + image)
					}
					return nil
				})
			}
		}
	}
	after, err := i.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), waiting, metav1.GetOptions{})
	if err != nil || after.UID != before.UID || framework.JSON(t, after.Spec) != framework.JSON(t, before.Spec) {
		t.Errorf("the NamespaceLifecycle was %s, and is %s, %v", framework.JSON(t, before.Spec), framework.JSON(t, after.Spec), err)
	}
	i.closedTo(t, tenant, waiting)
	i.RemoveFirst(t, waiting)
	i.WaitReady(t, waiting)
	// The configuration is deleted once no new namespace gets its initializer.
	if out, err := i.Kubectl("delete", "nsic", "upgrade", "--timeout="+framework.Patience.String()); err != nil {
		t.Fatal(err, out)
	}
}

// move moves the storage from the embedded etcd to an etcd cluster as docs/move-storage.md says. A namespace that waits continues.
// The cluster runs until the whole test ends.
func (i *installation) move(t, whole *testing.T) {
	etcdutl := filepath.Join(t.TempDir(), "etcdutl")
	build := exec.CommandContext(t.Context(), "nice", "-n", "19", "go", "build", "-o", etcdutl, "go.etcd.io/etcd/etcdutl/v3")
	build.Dir = i.Root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "move"}, Initializers: framework.Initializers("move.example.com"),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waiting := i.planned(t, "move.example.com")
	before := i.WaitCurrent(t, waiting, "move.example.com")

	url, peer := "https://127.0.0.1:"+framework.FreePort(t), "https://127.0.0.1:"+framework.FreePort(t)
	words := i.WordsHA(t, "images: [{name: nsinit, newTag: "+nextVersion+"}]\n", url)
	// The command in the pod runs here as a process, on the volume of the pod.
	words["kubectl -n nsinit-system exec nsinit-apiserver-0 -- /nsinit-apiserver storage"] = filepath.Join(framework.BinDir(), "nsinit-apiserver") +
		" storage --embedded-etcd-dir=" + filepath.Join(i.node.Dir, "data-nsinit-apiserver-0", "etcd")
	data, pki := filepath.Join(whole.TempDir(), "etcd"), filepath.Join(i.Dir, "pki")
	maps.Copy(words, map[string]string{"nsinit.db": filepath.Join(t.TempDir(), "nsinit.db"), "etcdutl ": etcdutl + " ",
		"NAME": "member", "CLUSTER": "member=" + peer, "URL": peer, "DIRECTORY": data})
	steps := i.Documented(t, framework.MoveStorageGuide, "Move from the embedded etcd")
	if len(steps) != 4 {
		t.Fatalf("docs/%s has %d blocks of commands", framework.MoveStorageGuide, len(steps))
	}
	for step, commands := range steps {
		if out, err := i.Shell(t, commands, words); err != nil {
			t.Fatalf("%s\n%v\n%s", commands, err, out)
		}
		if step == 1 {
			i.Run(whole, "etcd", "--name=member", "--data-dir="+data, "--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls="+peer,
				"--log-level=warn", "--client-cert-auth", "--trusted-ca-file="+pki+"/etcd-ca.crt", "--cert-file="+pki+"/etcd.crt", "--key-file="+pki+"/etcd.key",
				"--peer-client-cert-auth", "--peer-trusted-ca-file="+pki+"/etcd-ca.crt", "--peer-cert-file="+pki+"/etcd.crt", "--peer-key-file="+pki+"/etcd.key")
		}
	}
	after, err := i.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(t.Context(), waiting, metav1.GetOptions{})
	if err != nil || after.UID != before.UID || framework.JSON(t, after.Spec) != framework.JSON(t, before.Spec) {
		t.Errorf("the NamespaceLifecycle was %s, and is %s, %v", framework.JSON(t, before), framework.JSON(t, after), err)
	}
	if !i.IsClosed(t, waiting) {
		t.Error("the namespace has opened")
	}
	i.RemoveFirst(t, waiting)
	i.WaitReady(t, waiting)
	i.unregister(t, "move", "move.example.com")
	i.words[overlayEmbedded] = words["artifacts/deploy/overlays/ha"]
}

// uninstall runs the commands of docs/uninstall.md while namespaces are in every state. Afterwards, none is closed or
// stuck.
func (i *installation) uninstall(t *testing.T) {
	tenant := i.Tenant(t)
	if _, err := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(t.Context(), &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "uninstall"}, Initializers: []v1alpha1.RegisteredInitializer{
			{Name: "one.example.com", Finalizer: true, Holds: new(v1alpha1.HoldContent)}, {Name: "two.example.com", Finalizer: true}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func() string {
		namespace := i.planned(t, "one.example.com")
		i.WaitCurrent(t, namespace, "one.example.com")
		return namespace
	}
	open, leaving, waiting := create(), create(), create()
	for _, namespace := range []string{open, leaving} {
		i.RemoveFirst(t, namespace)
		i.RemoveFirst(t, namespace)
		i.WaitReady(t, namespace)
	}
	i.DeleteNamespace(t, leaving)
	// The second participant never cleans up.
	i.ReleaseParticipant(t, leaving, "one.example.com")

	steps := i.Documented(t, framework.UninstallGuide, "Uninstall")
	if len(steps) != 6 {
		t.Fatalf("docs/uninstall.md has %d blocks of commands", len(steps))
	}
	run := func(step int) {
		t.Helper()
		if out, err := i.Shell(t, steps[step], i.words); err != nil {
			t.Fatalf("step %d: %v\n%s", step+1, err, out)
		}
	}
	run(0)
	framework.Eventually(t, "new namespaces are not closed any more", func(ctx context.Context) error {
		namespace, err := i.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(namespace.Annotations) > 0 {
			err = fmt.Errorf("its annotations are %v", namespace.Annotations)
		}
		return err
	})
	i.closedTo(t, tenant, waiting)
	i.RemoveFirst(t, waiting)
	i.RemoveFirst(t, waiting)
	run(1)
	run(2)
	run(3)
	run(4)

	i.WaitNoNamespace(t, leaving)
	for _, namespace := range []string{open, waiting} {
		framework.WaitWrite(t, tenant, namespace)
		i.DeleteNamespace(t, namespace)
	}
	i.gone(t, open, waiting, "nsinit-system")
}

// gone checks that the namespaces are removed, that no other one waits for nsinit, and that nothing of nsinit is left in the API.
func (i *installation) gone(t *testing.T, removed ...string) {
	t.Helper()
	for _, namespace := range removed {
		i.WaitNoNamespace(t, namespace)
	}
	all, err := i.Core.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range all.Items {
		if _, closed := namespace.Labels[v1alpha1.LabelInitializing]; closed || len(namespace.Finalizers) > 0 {
			t.Errorf("namespace %s has the labels %v and the finalizers %v", namespace.Name, namespace.Labels, namespace.Finalizers)
		}
	}
	framework.Eventually(t, "nothing of nsinit is left in the API", func(ctx context.Context) error {
		policies, err := i.Core.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
		if err == nil && len(policies.Items) > 0 {
			err = fmt.Errorf("policy %s", policies.Items[0].Name)
		}
		var roles *rbacv1.ClusterRoleList
		if err == nil {
			roles, err = i.Core.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
		}
		if err != nil {
			return err
		}
		for _, role := range roles.Items {
			if strings.HasPrefix(role.Name, "nsinit:") {
				return fmt.Errorf("ClusterRole %s", role.Name)
			}
		}
		if _, err := i.Core.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String()); !apierrors.IsNotFound(err) {
			return errors.Join(err, errors.New("the group nsinit.dev is served"))
		}
		return nil
	})
}
