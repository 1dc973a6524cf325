/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/pkg/installation"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

const (
	// oldestKubernetes is the first version on which nsinit is tested, and stampingKubernetes the
	// first one that stamps by a policy; before, a webhook does.
	oldestKubernetes   = "1.34"
	stampingKubernetes = "1.36"
	// expiresSoon is how long a certificate should be valid at least.
	expiresSoon = 14 * 24 * time.Hour
	// leaseGrace is how long a Lease may have run out: the time of two machines differs.
	leaseGrace = 10 * time.Second
)

// State is what a check found.
type State string

const (
	// OK: it is as it should be.
	OK State = "OK"
	// Warning: it works, and will not for ever, or could not be looked at.
	Warning State = "Warning"
	// Problem: nsinit does not do what it is there for.
	Problem State = "Problem"
)

// Result is one finding.
type Result struct {
	Check   string `json:"check"`
	State   State  `json:"state"`
	Message string `json:"message"`
	// Remedy is what helps, where something is wrong.
	Remedy string `json:"remedy,omitempty"`
}

// clients are how the cluster is reached.
type clients struct {
	core    kubernetes.Interface
	nsinit  versioned.Interface
	rest    rest.Interface
	apis    aggregator.Interface
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
}

// inspection is one look at an installation.
type inspection struct {
	clients
	now     time.Time
	results []Result
	// webhookStamps says that a webhook takes the place of the policy that stamps.
	webhookStamps bool
}

// inspect looks at everything.
func inspect(ctx context.Context, clients clients, now time.Time) []Result {
	i := &inspection{clients: clients, now: now}
	i.kubernetes()
	i.api(ctx)
	i.records(ctx)
	i.storageSpace(ctx)
	i.objects(ctx)
	i.controllers(ctx)
	i.configMaps(ctx)
	i.delivered(ctx)
	i.nameReuse(ctx)
	i.stamp(ctx)
	i.servingCertificate(ctx)
	return i.results
}

func (i *inspection) add(check string, state State, remedy, format string, args ...any) {
	i.results = append(i.results, Result{Check: check, State: state, Remedy: remedy, Message: fmt.Sprintf(format, args...)})
}

// unknown notes what could not be looked at.
func (i *inspection) unknown(check string, err error) {
	i.add(check, Warning, "run kubectl nsinit check as a cluster administrator", "not checked: %v", err)
}

// installAgain brings back what is missing.
const installAgain = "kubectl apply --server-side -k artifacts/deploy/overlays/embedded, or the overlay that was installed"

// kubernetes looks at the version of the cluster.
func (i *inspection) kubernetes() {
	const check = "Kubernetes"
	info, err := i.core.Discovery().ServerVersion()
	if err != nil {
		i.unknown(check, err)
		return
	}
	found, err := utilversion.ParseGeneric(info.GitVersion)
	switch {
	case err != nil:
		i.unknown(check, err)
	case found.LessThan(utilversion.MustParseGeneric(oldestKubernetes)):
		i.add(check, Problem, "upgrade kube-apiserver to "+oldestKubernetes+" or later", "nsinit is not tested on %s", info.GitVersion)
	default:
		i.webhookStamps = found.LessThan(utilversion.MustParseGeneric(stampingKubernetes))
		i.add(check, OK, "", "%s", info.GitVersion)
	}
}

// api looks at the registration of nsinit's API.
func (i *inspection) api(ctx context.Context) {
	const check = "APIService"
	name := v1alpha1.SchemeGroupVersion.Version + "." + v1alpha1.SchemeGroupVersion.Group
	service, err := i.apis.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		i.add(check, Problem, installAgain, "%s does not exist: nsinit is not installed", name)
		return
	}
	if err != nil {
		i.unknown(check, err)
		return
	}
	if reason, _ := diagnosis.Unavailable(service); reason != "" {
		i.add(check, Problem, "kubectl describe apiservice "+name, "%s: %s", name, reason)
	} else {
		i.add(check, OK, "", "%s: available", name)
	}
	if service.Spec.InsecureSkipTLSVerify {
		i.add("CA", Problem, "set spec.caBundle of APIService "+name, "kube-apiserver does not verify the certificate of nsinit-apiserver")
		return
	}
	i.certificate("CA", "spec.caBundle of the APIService", service.Spec.CABundle)
}

// certificate looks at how long certificates are valid.
func (i *inspection) certificate(check, where string, data []byte) {
	const remedy = "see what nsinit-controller-manager logs of certificates, or cert-manager, where it makes them"
	expires, err := earliestEnd(data)
	left := expires.Sub(i.now).Round(time.Hour)
	switch {
	case err != nil:
		i.add(check, Problem, remedy, "%s: %v", where, err)
	case left <= 0:
		i.add(check, Problem, remedy, "%s: expired at %s", where, expires.UTC().Format(time.RFC3339))
	case left < expiresSoon:
		i.add(check, Warning, remedy, "%s: expires in %s, at %s", where, left, expires.UTC().Format(time.RFC3339))
	default:
		i.add(check, OK, "", "%s: valid until %s", where, expires.UTC().Format(time.RFC3339))
	}
}

// earliestEnd returns when the first of some certificates expires.
func earliestEnd(data []byte) (time.Time, error) {
	certificates, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return time.Time{}, err
	}
	return slices.MinFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter, nil
}

// records looks whether the server answers for records, which it refuses where its storage
// was lost.
func (i *inspection) records(ctx context.Context) {
	const check = "Records"
	_, err := i.nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, "no-namespace-has-this-name", metav1.GetOptions{})
	switch {
	case utilapierrors.IsAbsent(err):
		i.add(check, OK, "", "NamespaceLifecycles are served")
	case apierrors.IsForbidden(err):
		i.unknown(check, err)
	case err != nil:
		i.add(check, Problem, "kubectl --namespace "+installation.Namespace+" logs --selector app.kubernetes.io/name="+installation.APIServer, "nsinit-apiserver does not tell of them: %v", err)
	default:
		i.add(check, OK, "", "NamespaceLifecycles are served")
	}
}

// controllers looks whether an instance of nsinit-controller-manager acts.
func (i *inspection) controllers(ctx context.Context) {
	const check = "Controllers"
	remedy := fmt.Sprintf("kubectl --namespace %s get pods; kubectl --namespace %s logs deployment/%s", installation.Namespace, installation.Namespace, installation.ControllerManager)
	lease, err := i.core.CoordinationV1().Leases(installation.Namespace).Get(ctx, installation.ControllerManager, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		i.add(check, Problem, remedy, "there is no Lease: nsinit-controller-manager has never run")
	case err != nil:
		i.unknown(check, err)
	case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.RenewTime == nil:
		i.add(check, Problem, remedy, "nobody holds the Lease: nsinit-controller-manager does not run")
	default:
		valid := leaseGrace
		if lease.Spec.LeaseDurationSeconds != nil {
			valid += time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
		}
		if i.now.Sub(lease.Spec.RenewTime.Time) > valid {
			i.add(check, Problem, remedy, "%s has not renewed the Lease since %s", *lease.Spec.HolderIdentity, lease.Spec.RenewTime.UTC().Format(time.RFC3339))
			return
		}
		i.add(check, OK, "", "%s acts", *lease.Spec.HolderIdentity)
	}
}

// configMaps looks for what the policies and the server depend on.
func (i *inspection) configMaps(ctx context.Context) {
	for _, configMap := range []struct{ check, name, without string }{
		{"Exemptions", "nsinit-exemptions", "no namespace can be created"},
		{"Storage", "nsinit-storage", "a storage that was lost could not be told from a new one"},
	} {
		found, err := i.core.CoreV1().ConfigMaps(installation.Namespace).Get(ctx, configMap.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			i.add(configMap.check, Problem, installAgain, "ConfigMap %s/%s is missing: without it, %s", installation.Namespace, configMap.name, configMap.without)
		case err != nil:
			i.unknown(configMap.check, err)
		default:
			i.add(configMap.check, OK, "", "ConfigMap %s/%s is there", found.Namespace, found.Name)
		}
	}
}

// stamp looks whether a new namespace would be closed, by creating one without storing it.
func (i *inspection) stamp(ctx context.Context) {
	const check = "Gate"
	namespace, err := i.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "nsinit-check-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsForbidden(err) {
		i.unknown(check, err)
		return
	}
	if err != nil {
		i.add(check, Problem, "do what the refusal says", "no namespace can be created: %v", err)
		return
	}
	if !helper.IsClosed(namespace) {
		i.add(check, Problem, "kubectl apply --server-side -k artifacts/policies", "a new namespace would be open from the beginning")
		return
	}
	i.add(check, OK, "", "a new namespace is closed until it is initialized")
}

// servingCertificate looks at the certificate in the Secret of the manifests, if it is used.
func (i *inspection) servingCertificate(ctx context.Context) {
	const check = "Certificate"
	secret, err := i.core.CoreV1().Secrets(installation.Namespace).Get(ctx, installation.ServingSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		i.add(check, Warning, "look at the certificate that nsinit-apiserver serves", "there is no Secret %s/%s: the certificate is somewhere else", installation.Namespace, installation.ServingSecret)
	case err != nil:
		i.unknown(check, err)
	default:
		i.certificate(check, "Secret "+installation.Namespace+"/"+installation.ServingSecret, secret.Data[corev1.TLSCertKey])
	}
}
