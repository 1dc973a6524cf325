//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// TestExamples: the examples apply as they are.
func TestExamples(t *testing.T) {
	c := connect(t)
	examples, err := filepath.Glob(filepath.Join(c.root, "artifacts", "examples", "*.yaml"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("%d examples, %v", len(examples), err)
	}
	// Without the namespace that an example brings, its content cannot be tried.
	const brought = "bakery"
	if _, err := c.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: brought}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.core.CoreV1().Namespaces().Delete(context.Background(), brought, metav1.DeleteOptions{}) })
	c.waitReady(t, brought)
	for _, example := range examples {
		if _, err := c.kubectl("apply", "--dry-run=server", "-f", example); err != nil {
			t.Error(err)
		}
	}
}

// TestDeploy: the kustomization of a whole installation asks for certificates, and applies
// with those that certificates.sh makes. Nothing of it is stored.
func TestDeploy(t *testing.T) {
	c := connect(t)
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "artifacts"), os.DirFS(filepath.Join(c.root, "artifacts"))); err != nil {
		t.Fatal(err)
	}
	deploy := filepath.Join(root, "artifacts", "deploy")
	files := filepath.Join(deploy, "from-certificates.sh")
	if err := os.RemoveAll(files); err != nil {
		t.Fatal(err)
	}
	if _, err := c.kubectl("kustomize", deploy); err == nil || !strings.Contains(err.Error(), "from-certificates.sh") {
		t.Errorf("without certificates: want an error that names the script, got %v", err)
	}

	certificates := func() (authority, certificate []byte) {
		if out, err := exec.CommandContext(t.Context(), filepath.Join(deploy, "certificates.sh")).CombinedOutput(); err != nil {
			t.Fatalf("certificates.sh: %v\n%s", err, out)
		}
		authority, err := os.ReadFile(filepath.Join(files, "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"nsinit-apiserver", "nsinit-controller-manager"} {
			certificate = checkCertificate(t, authority, filepath.Join(files, name), name+".nsinit-system.svc")
		}
		return authority, certificate
	}
	authority, certificate := certificates()
	again, renewed := certificates()
	if !bytes.Equal(authority, again) || bytes.Equal(certificate, renewed) {
		t.Error("a second run of certificates.sh has to keep the authority, and to renew the certificates")
	}

	manifests, err := c.kubectl("kustomize", deploy)
	if err != nil {
		t.Fatal(err)
	}
	checkManifests(t, manifests, authority)
	if out, err := c.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", deploy); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// checkCertificate checks that an authority has signed a certificate for a host.
func checkCertificate(t *testing.T, authority []byte, file, host string) []byte {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	return pair.Certificate[0]
}

// checkManifests checks that nsinit-apiserver is known by its authority, and that the
// programs have no more rights on their node than they need.
func checkManifests(t *testing.T, manifests string, authority []byte) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	workloads := 0
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object); err != nil {
			break // the end: kubectl has parsed all of it before
		}
		switch object.GetKind() {
		case "APIService":
			var service struct {
				Spec struct {
					CABundle              []byte
					InsecureSkipTLSVerify bool
				}
			}
			decode(t, object, &service)
			if !bytes.Equal(service.Spec.CABundle, authority) || service.Spec.InsecureSkipTLSVerify {
				t.Errorf("the APIService trusts %q, insecureSkipTLSVerify=%v", service.Spec.CABundle, service.Spec.InsecureSkipTLSVerify)
			}
		case "Deployment", "StatefulSet":
			workloads++
			var workload struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			decode(t, object, &workload)
			checkPod(t, object.GetName(), workload.Spec.Template.Spec)
		}
	}
	if workloads != 3 {
		t.Errorf("there are %d workloads, want 3", workloads)
	}
}

func checkPod(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot ||
		s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: the pod's security context is %v", name, s)
	}
	for _, container := range pod.Containers {
		s := container.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || len(s.Capabilities.Drop) != 1 {
			t.Errorf("%s: the container's security context is %v", name, s)
		}
		if container.LivenessProbe == nil || container.ReadinessProbe == nil || container.Resources.Requests.Memory().IsZero() {
			t.Errorf("%s: probes or resources are missing", name)
		}
	}
}

func decode(t *testing.T, object unstructured.Unstructured, into any) {
	t.Helper()
	data, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := utilyaml.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}
