/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/util/cert"

	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/diagnosis"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
)

const (
	// oldestKubernetes and newestKubernetes are the first and the last version on which nsinit is tested. stampingKubernetes is the
	// first one that stamps by a policy; before, a webhook does.
	oldestKubernetes   = "1.34"
	newestKubernetes   = "1.37"
	stampingKubernetes = "1.36"
	// expiresSoon is the remaining validity below which a certificate is a warning.
	expiresSoon = 14 * 24 * time.Hour
)

// State is the result of a check.
type State string

const (
	// OK: nothing is wrong.
	OK State = "OK"
	// Warning: it works, but not indefinitely, or it could not be checked.
	Warning State = "Warning"
	// Problem: nsinit does not work.
	Problem State = "Problem"
)

// Result is one finding.
type Result struct {
	Check   string `json:"check"`
	State   State  `json:"state"`
	Message string `json:"message"`
	// Remedy is the next step, except for OK.
	Remedy string `json:"remedy,omitempty"`
	// Unfinished is set for a warning that ends when the installation is complete.
	Unfinished bool `json:"-"`
}

// inspection is one check of an installation.
type inspection struct {
	*cmdutil.Clients
	// namespace is that of nsinit.
	namespace string
	now       time.Time
	results   []Result
	// webhookStamps says that a webhook takes the place of the policy that stamps.
	webhookStamps bool
	// off says that kubectl nsinit off was run.
	off bool
	// leftovers are objects of a former installation.
	leftovers []string
}

// inspect checks everything.
func inspect(ctx context.Context, clients *cmdutil.Clients) []Result {
	i := &inspection{Clients: clients, namespace: clients.InstalledIn(ctx), now: clients.ServerClock.Now()}
	i.kubernetes()
	if i.absent(ctx) {
		return i.results
	}
	for _, check := range []func(context.Context){
		i.programs, i.installation, i.storageSpace, i.objects, i.served, i.configMaps, i.delivered, i.inForce, i.nameReuse, i.heldObjects, i.stamp, i.servingCertificate,
	} {
		check(ctx)
	}
	return i.results
}

// absent reports whether nsinit was never installed. Other checks would only name its parts.
func (i *inspection) absent(ctx context.Context) bool {
	_, err := i.Core.CoreV1().Namespaces().Get(ctx, i.namespace, metav1.GetOptions{})
	_, serviceErr := i.APIs.ApiregistrationV1().APIServices().Get(ctx, installation.APIService, metav1.GetOptions{})
	_, guardErr := i.Core.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, installation.GuardCreate, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(serviceErr) || !apierrors.IsNotFound(guardErr) {
		return false
	}
	i.add("Installation", Problem, "install nsinit (docs/install.md)", "nsinit is not installed: namespace %s, APIService %s and policy %s do not exist", i.namespace, installation.APIService, installation.GuardCreate)
	return true
}

func (i *inspection) add(check string, state State, remedy, format string, args ...any) {
	i.results = append(i.results, Result{Check: check, State: state, Remedy: remedy, Message: fmt.Sprintf(format, args...)})
}

// unknown adds what could not be checked.
func (i *inspection) unknown(check string, err error) {
	i.add(check, Warning, "run this command as a cluster administrator", "not checked: %v", err)
}

// installAgain restores what is missing or was changed.
const installAgain = "apply the overlay, the file of a release or the chart that you installed again (docs/install.md)"

// kubernetes checks the version of the cluster.
func (i *inspection) kubernetes() {
	const check = "Kubernetes"
	info, err := i.Core.Discovery().ServerVersion()
	if err != nil { // the command has read it before, so kube-apiserver restarts
		i.unknown(check, err)
		i.results[len(i.results)-1].Unfinished = true
		return
	}
	found, err := utilversion.ParseGeneric(info.GitVersion)
	switch {
	case err != nil:
		i.unknown(check, err)
	case found.LessThan(utilversion.MustParseGeneric(oldestKubernetes)):
		i.add(check, Problem, "upgrade kube-apiserver to "+oldestKubernetes+" or later", "nsinit is not tested on %s", info.GitVersion)
	case found.AtLeast(utilversion.MustParseGeneric(newestKubernetes).OffsetMinor(1)):
		i.add(check, Warning, "install a version of nsinit that is tested on it, or try it in a test cluster first", "this version of nsinit is tested up to %s, not on %s", newestKubernetes, info.GitVersion)
	default:
		i.webhookStamps = found.LessThan(utilversion.MustParseGeneric(stampingKubernetes))
		i.add(check, OK, "", "%s", info.GitVersion)
	}
}

// installation checks what kubectl nsinit why checks, too.
func (i *inspection) installation(ctx context.Context) {
	installed := diagnosis.ObserveInstallation(ctx, i.Clients.Clients, "no-namespace-has-this-name", i.now)
	for _, fact := range []struct {
		check string
		judge func() (diagnosis.Finding, error)
	}{{"APIService", installed.API}, {"Lifecycles", installed.Lifecycles}, {"Controllers", installed.ControllerManager}} {
		switch finding, err := fact.judge(); {
		case err != nil:
			i.unknown(fact.check, err)
		case finding.State == diagnosis.Healthy:
			i.add(fact.check, OK, "", "%s", finding.Message)
		default:
			remedy := finding.Remedies[0]
			i.add(fact.check, Problem, cmp.Or(remedy.Command, remedy.Description), "%s", finding.Message)
		}
	}
	if service := installed.APIService(); service == nil {
		return
	} else if service.Spec.InsecureSkipTLSVerify {
		i.add("CA", Problem, "set spec.caBundle of APIService "+service.Name, "kube-apiserver does not verify the certificate of nsinit-apiserver")
	} else {
		i.certificate("CA", "spec.caBundle of the APIService", renewal, service.Spec.CABundle)
	}
}

// renewal is the remedy for the certificates of nsinit.
const renewal = "read the log of nsinit-controller-manager about certificates or, if cert-manager issues them, the status of its Certificate"

// certificate checks how long certificates are valid. The one that expires first counts.
func (i *inspection) certificate(check, where, remedy string, data []byte) {
	certificates, err := cert.ParseCertsPEM(data)
	if err != nil {
		i.add(check, Problem, remedy, "%s: %v", where, err)
		return
	}
	expires := slices.MinFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter.UTC()
	left, at := expires.Sub(i.now).Round(time.Hour), expires.Format(time.RFC3339)
	switch {
	case left <= 0:
		i.add(check, Problem, remedy, "%s: expired at %s", where, at)
	case left < expiresSoon:
		i.add(check, Warning, remedy, "%s: expires in %s, at %s", where, left, at)
	default:
		i.add(check, OK, "", "%s: valid until %s", where, at)
	}
}

// configMaps checks the ConfigMaps that the policies and nsinit-apiserver need.
func (i *inspection) configMaps(ctx context.Context) {
	for _, configMap := range []struct{ check, name, without, remedy string }{
		{"Exemptions", installation.Exemptions, "no namespace can be created", installAgain},
		{"Storage", "nsinit-storage", "nsinit-apiserver cannot distinguish a lost storage from a new one", "read the log of nsinit-apiserver, which creates the ConfigMap"},
	} {
		found, err := i.Core.CoreV1().ConfigMaps(i.namespace).Get(ctx, configMap.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			i.add(configMap.check, Problem, configMap.remedy, "ConfigMap %s/%s is missing: without it, %s", i.namespace, configMap.name, configMap.without)
		case err != nil:
			i.unknown(configMap.check, err)
		case configMap.name == installation.Exemptions:
			i.malformed(configMap.check, found)
		default:
			i.add(configMap.check, OK, "", "ConfigMap %s/%s exists", found.Namespace, found.Name)
		}
	}
}

// storageSpace checks whether the storage accepts new objects. nsinit-apiserver also refuses dry runs while its storage is full.
func (i *inspection) storageSpace(ctx context.Context) {
	_, err := i.Nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations().Create(ctx, &v1alpha1.NamespaceInitializerConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "nsinit-check-"},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if i.accepted("StorageSpace", err, `see "When the storage is full" in docs/storage.md`, "object") {
		i.add("StorageSpace", OK, "", "the storage accepts new objects")
	}
}

// stamp checks whether a new namespace would be closed.
func (i *inspection) stamp(ctx context.Context) {
	if i.off {
		return
	}
	const check, generateName = "Gate", "nsinit-check-"
	namespace, err := i.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: generateName}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case !i.accepted(check, err, "fix the cause in the message", "namespace"):
	case !helper.IsClosed(namespace):
		// The server has generated the name.
		if own, err := creation(ctx, i.Clients, cmdutil.Future{}, namespace.Name, namespace.GenerateName); err == nil && !own.Closed {
			i.add(check, OK, "", "a namespace that you create is not closed, because user %q is exempt by %s: %s", own.Creator, own.Source, own.ExemptBy)
			return
		}
		i.add(check, Problem, installAgain, "a new namespace is not closed")
	default:
		i.add(check, OK, "", "a new namespace is closed until it is initialized")
	}
}

// accepted reports whether the server accepted an object in a dry run, and adds the error.
func (i *inspection) accepted(check string, err error, remedy, what string) bool {
	switch {
	case apierrors.IsForbidden(err) && !refused(err):
		i.unknown(check, err)
	case err != nil:
		i.add(check, Problem, remedy, "no %s can be created: %v", what, err)
	}
	return err == nil
}

// refused reports whether a policy or a webhook caused an error. Otherwise, the user may not do this.
func refused(err error) bool {
	return strings.Contains(err.Error(), "' denied request") || strings.Contains(err.Error(), `" denied the request`)
}

// servingCertificate checks the certificate in the Secret of the manifests, if it is used.
func (i *inspection) servingCertificate(ctx context.Context) {
	const check = "Certificate"
	secret, err := i.Core.CoreV1().Secrets(i.namespace).Get(ctx, installation.ServingSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		i.add(check, Warning, "check the certificate that nsinit-apiserver serves", "Secret %s/%s does not exist: the certificate is stored elsewhere", i.namespace, installation.ServingSecret)
	case err != nil:
		i.unknown(check, err)
	default:
		i.certificate(check, "Secret "+i.namespace+"/"+installation.ServingSecret, renewal, secret.Data[corev1.TLSCertKey])
	}
}
