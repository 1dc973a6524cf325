/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package controllermanager puts nsinit-controller-manager together: flags, leader
// election, the endpoints for health and metrics, and the controllers.
package controllermanager

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/pkg/controller/certificates"
	"github.com/nsinit/nsinit/pkg/controller/termination"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/pkg/util/leader"
	"github.com/nsinit/nsinit/pkg/util/namespacedname"
)

const name = installation.ControllerManager

// Options are the options of nsinit-controller-manager.
type Options struct {
	SecureServing  *genericoptions.SecureServingOptionsWithLoopback
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *genericoptions.DelegatingAuthorizationOptions
	Logs           *logs.Options

	Kubeconfig   string
	Exemptions   string
	Workers      int
	StalledAfter time.Duration
	// NamespaceTermination runs the controller of that name.
	NamespaceTermination bool
	// Certificates makes and renews the certificates of nsinit-apiserver.
	Certificates   Certificates
	LeaderElection LeaderElection
}

// Certificates say which certificates are kept, if they are.
type Certificates struct {
	Enabled bool
	certificates.Options
}

// LeaderElection says how instances agree on which of them acts, if they do.
type LeaderElection struct {
	Enabled bool
	leader.Election
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	o := &Options{
		SecureServing:  genericoptions.NewSecureServingOptions().WithLoopback(),
		Authentication: genericoptions.NewDelegatingAuthenticationOptions(),
		Authorization:  genericoptions.NewDelegatingAuthorizationOptions(),
		Logs:           logs.NewOptions(),
		Exemptions:     installation.Namespace + "/" + installation.Exemptions,
		Workers:        8,
		StalledAfter:   5 * time.Minute,
		Certificates: Certificates{Options: certificates.Options{
			Namespace: installation.Namespace, CASecret: "nsinit-ca", ServingSecret: installation.ServingSecret,
			Names:       installation.ServingNames(),
			APIServices: []string{v1alpha1.SchemeGroupVersion.Version + "." + v1alpha1.GroupName},
			CA:          365 * 24 * time.Hour, Serving: 90 * 24 * time.Hour,
		}},
		LeaderElection: LeaderElection{Enabled: true, Election: leader.NewElection(installation.Namespace, name)},
	}
	o.SecureServing.BindPort = 10443
	o.SecureServing.ServerCert.CertDirectory = ""
	o.SecureServing.ServerCert.PairName = name
	o.Authorization.AlwaysAllowPaths = []string{"/healthz", "/livez", "/readyz"}
	return o
}

// AddFlags adds every flag.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.SecureServing.AddFlags(flags)
	o.Authentication.AddFlags(flags)
	o.Authorization.AddFlags(flags)
	logsapi.AddFlags(o.Logs, flags)
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig of the cluster. Without it, the service account of the pod is used.")
	flags.StringVar(&o.Exemptions, "exemptions-configmap", o.Exemptions,
		"NAMESPACE/NAME of the ConfigMap that lists the namespaces which nsinit leaves alone, one on each line of its key namespaces. The policies read the same one.")
	flags.IntVar(&o.Workers, "workers", o.Workers, "Number of namespaces that are worked on at the same time.")
	flags.DurationVar(&o.StalledAfter, "stalled-after", o.StalledAfter,
		"How long an initializer may have its turn before the condition Stalled and an event report it. 0 means for ever.")
	flags.BoolVar(&o.NamespaceTermination, termination.Name, o.NamespaceTermination,
		"Empty namespaces that are being deleted, and let them go. For control planes without kube-controller-manager, which does that where it runs. "+
			"It takes the rights in artifacts/deploy/namespace-termination.yaml.")
	flags.BoolVar(&o.Certificates.Enabled, certificates.Name, o.Certificates.Enabled,
		"Make and renew the certificates of nsinit's programs: a CA in the Secret "+o.Certificates.CASecret+", the serving certificate in the Secret "+
			o.Certificates.ServingSecret+", and the caBundle of the APIService. It takes the rights in artifacts/deploy/base/certificates.yaml.")
	flags.DurationVar(&o.Certificates.CA, "certificates-ca-validity", o.Certificates.CA,
		"How long a CA is valid. It is renewed with a third of that left.")
	flags.DurationVar(&o.Certificates.Serving, "certificates-serving-validity", o.Certificates.Serving,
		"How long a serving certificate is valid. It is renewed with a third of that left.")
	flags.BoolVar(&o.LeaderElection.Enabled, "leader-elect", o.LeaderElection.Enabled,
		"Let one of several instances act at a time.")
	flags.StringVar(&o.LeaderElection.Namespace, "leader-elect-resource-namespace", o.LeaderElection.Namespace,
		"Namespace of the Lease by which instances agree.")
	flags.DurationVar(&o.LeaderElection.LeaseDuration, "leader-elect-lease-duration", o.LeaderElection.LeaseDuration,
		"How long an instance that does not answer is still taken for the leader.")
	flags.DurationVar(&o.LeaderElection.RenewDeadline, "leader-elect-renew-deadline", o.LeaderElection.RenewDeadline,
		"How long the leader tries to renew its lease before it gives up.")
	flags.DurationVar(&o.LeaderElection.RetryPeriod, "leader-elect-retry-period", o.LeaderElection.RetryPeriod,
		"How long an instance waits between two tries.")
}

// Complete fills in what follows from other options.
func (o *Options) Complete() error {
	if o.Kubeconfig != "" {
		if o.Authentication.RemoteKubeConfigFile == "" {
			o.Authentication.RemoteKubeConfigFile = o.Kubeconfig
		}
		if o.Authorization.RemoteKubeConfigFile == "" {
			o.Authorization.RemoteKubeConfigFile = o.Kubeconfig
		}
	}
	return defaultCertificate(o.SecureServing.SecureServingOptions, o.Certificates.Enabled)
}

// Validate returns everything that is wrong.
func (o *Options) Validate() error {
	var errs []error
	errs = append(errs, o.SecureServing.Validate()...)
	errs = append(errs, o.Authentication.Validate()...)
	errs = append(errs, o.Authorization.Validate()...)
	if _, _, err := namespacedname.Parse(o.Exemptions); err != nil {
		errs = append(errs, fmt.Errorf("--exemptions-configmap: %w", err))
	}
	if o.Workers < 1 {
		errs = append(errs, fmt.Errorf("--workers=%d: at least one is needed", o.Workers))
	}
	if o.StalledAfter < 0 {
		errs = append(errs, fmt.Errorf("--stalled-after=%s: give a positive duration, or 0 to report nothing", o.StalledAfter))
	}
	if c := o.Certificates; c.Enabled && (c.Serving <= 0 || c.CA <= c.Serving) {
		errs = append(errs, fmt.Errorf("--certificates-serving-validity=%s must be positive, and --certificates-ca-validity=%s longer", c.Serving, c.CA))
	}
	le := o.LeaderElection
	if le.Enabled && (le.RetryPeriod <= 0 || le.RenewDeadline <= le.RetryPeriod || le.LeaseDuration <= le.RenewDeadline) {
		errs = append(errs, errors.New("--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, and that longer than --leader-elect-retry-period"))
	}
	return utilerrors.NewAggregate(errs)
}
