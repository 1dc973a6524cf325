/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package controllermanager assembles nsinit-controller-manager: flags, leader election, the
// endpoints for health and metrics, and the controllers.
package controllermanager

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	componentbaseoptions "k8s.io/component-base/config/options"
	"k8s.io/component-base/config/validation"
	"k8s.io/component-base/logs"

	"github.com/nsinit/nsinit/pkg/controller/certificates"
	"github.com/nsinit/nsinit/pkg/controller/lifecycle"
	"github.com/nsinit/nsinit/pkg/controller/termination"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/util/leader"
)

const name = installation.ControllerManager

// Options are the options of nsinit-controller-manager.
type Options struct {
	SecureServing  *genericoptions.SecureServingOptions
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *genericoptions.DelegatingAuthorizationOptions
	Logs           *logs.Options

	Kubeconfig   string
	Workers      int
	StalledAfter time.Duration
	// RequiredObjects have the form resource[.group]/name.
	RequiredObjects      []string
	RequiredTimeout      time.Duration
	NamespaceTermination bool
	Certificates         Certificates
	LeaderElection       config.LeaderElectionConfiguration
}

// Certificates configures the controller that issues certificates.
type Certificates struct {
	Enabled bool
	certificates.Options
}

// NewOptions returns the default options.
func NewOptions() *Options {
	namespace := installation.Namespace()
	elected := leader.NewElection(namespace, name)
	o := &Options{
		SecureServing:   genericoptions.NewSecureServingOptions(),
		Authentication:  genericoptions.NewDelegatingAuthenticationOptions(),
		Authorization:   genericoptions.NewDelegatingAuthorizationOptions(),
		Logs:            logs.NewOptions(),
		Workers:         8,
		StalledAfter:    5 * time.Minute,
		RequiredTimeout: 5 * time.Second,
		Certificates: Certificates{Options: certificates.Options{
			Namespace: namespace, CASecret: "nsinit-ca", ServingSecret: installation.ServingSecret,
			Names:      installation.ServingNames(namespace),
			APIService: installation.APIService,
			CA:         365 * 24 * time.Hour, Serving: 90 * 24 * time.Hour,
		}},
		LeaderElection: config.LeaderElectionConfiguration{
			LeaderElect: true, ResourceLock: resourcelock.LeasesResourceLock, ResourceNamespace: namespace, ResourceName: name,
			LeaseDuration: metav1.Duration{Duration: elected.LeaseDuration}, RenewDeadline: metav1.Duration{Duration: elected.RenewDeadline},
			RetryPeriod: metav1.Duration{Duration: elected.RetryPeriod},
		},
	}
	for _, object := range lifecycle.ObjectsByKubernetes() {
		o.RequiredObjects = append(o.RequiredObjects, object.String())
	}
	o.SecureServing.BindPort = 10443
	o.SecureServing.ServerCert.CertDirectory = ""
	o.SecureServing.ServerCert.PairName = name
	o.Authorization.AlwaysAllowPaths = []string{"/healthz", "/livez", "/readyz"}
	return o
}

// AddFlags adds the flags of every option except those of the logs.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.SecureServing.AddFlags(flags)
	o.Authentication.AddFlags(flags)
	o.Authorization.AddFlags(flags)
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig of the cluster. Without this flag, the program uses the service account of its pod.")
	flags.IntVar(&o.Workers, "workers", o.Workers, "Number of namespaces that nsinit-controller-manager reconciles at the same time.")
	flags.DurationVar(&o.StalledAfter, "stalled-after", o.StalledAfter,
		"How long an initializer's turn or a participant's cleanup may last. After this time, the condition Stalled and an event report the delay. 0 disables the report.")
	flags.StringSliceVar(&o.RequiredObjects, "required-objects", o.RequiredObjects,
		"Objects that must exist in a namespace before its gate opens, each as resource[.group]/name. An empty list disables the wait. "+
			"nsinit-controller-manager needs the verbs list and watch for each object.")
	flags.DurationVar(&o.RequiredTimeout, "required-objects-timeout", o.RequiredTimeout,
		"If no namespace gets a required object for this time, initialized namespaces stop waiting for this object. "+
			"Their gates open, and a condition and an event name the missing object.")
	flags.BoolVar(&o.NamespaceTermination, termination.Name, o.NamespaceTermination,
		"Delete the content of terminating namespaces, and then remove the finalizer kubernetes. Use this flag only on control planes without kube-controller-manager. "+
			"The flag requires the permissions in artifacts/deploy/namespace-termination.yaml.")
	flags.BoolVar(&o.Certificates.Enabled, certificates.Name, o.Certificates.Enabled,
		"Issue and renew the CA certificate in the Secret "+o.Certificates.CASecret+" and the serving certificate in the Secret "+o.Certificates.ServingSecret+
			". nsinit-controller-manager also writes the CA certificate to the caBundle of the APIService. The flag requires the permissions in artifacts/deploy/base/certificates.yaml.")
	flags.DurationVar(&o.Certificates.CA, "certificates-ca-validity", o.Certificates.CA,
		"Validity of a new CA certificate. nsinit-controller-manager renews the certificate when a third of the validity is left.")
	flags.DurationVar(&o.Certificates.Serving, "certificates-serving-validity", o.Certificates.Serving,
		"Validity of a new serving certificate. nsinit-controller-manager renews the certificate when a third of the validity is left.")
	componentbaseoptions.BindLeaderElectionFlags(&o.LeaderElection, flags)
}

// Complete sets the options that depend on others.
func (o *Options) Complete() error {
	for _, file := range []*string{&o.Authentication.RemoteKubeConfigFile, &o.Authorization.RemoteKubeConfigFile} {
		*file = cmp.Or(*file, o.Kubeconfig)
	}
	return defaultCertificate(o.SecureServing, o.Certificates.Enabled)
}

// Validate returns every invalid option.
func (o *Options) Validate() error {
	var errs []error
	errs = append(errs, o.SecureServing.Validate()...)
	errs = append(errs, o.Authentication.Validate()...)
	errs = append(errs, o.Authorization.Validate()...)
	if o.Workers < 1 {
		errs = append(errs, fmt.Errorf("--workers=%d: set at least 1", o.Workers))
	}
	if o.StalledAfter < 0 {
		errs = append(errs, fmt.Errorf("--stalled-after=%s: set a positive duration, or 0 to disable the report", o.StalledAfter))
	}
	if _, err := lifecycle.ParseRequiredObjects(o.RequiredObjects); err != nil {
		errs = append(errs, fmt.Errorf("--required-objects: %w", err))
	}
	if o.RequiredTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--required-objects-timeout=%s: set a positive duration, or --required-objects= to disable the wait", o.RequiredTimeout))
	}
	if c := o.Certificates; c.Enabled && (c.Serving <= 0 || c.CA <= c.Serving) {
		errs = append(errs, fmt.Errorf("--certificates-serving-validity=%s must be positive, and --certificates-ca-validity=%s longer", c.Serving, c.CA))
	}
	errs = append(errs, validation.ValidateLeaderElectionConfiguration(&o.LeaderElection, nil).ToAggregate())
	if lock := o.LeaderElection.ResourceLock; lock != resourcelock.LeasesResourceLock {
		errs = append(errs, fmt.Errorf("--leader-elect-resource-lock=%s: set %s", lock, resourcelock.LeasesResourceLock))
	}
	return utilerrors.NewAggregate(errs)
}
