/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package objects

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// rejection is why kube-apiserver does not compile a version of a configuration, and when nsinit last tried.
type rejection struct {
	why string
	at  time.Time
}

func (s *session) rejectionOf(c *v1alpha1.InitializerConfiguration) (rejection, bool) {
	value, _ := s.rejected.Load(versionOf(c))
	rejected, is := value.(rejection)
	return rejected, is
}

// divide returns the configurations that kube-apiserver has not rejected, and the others.
func (s *session) divide(configurations []*v1alpha1.InitializerConfiguration) (accepted, rejected []*v1alpha1.InitializerConfiguration) {
	for _, c := range configurations {
		if _, is := s.rejectionOf(c); is {
			rejected = append(rejected, c)
		} else {
			accepted = append(accepted, c)
		}
	}
	return accepted, rejected
}

// registered returns the initializers of configurations by name. Objects can wait for an initializer of a rejected configuration, as an
// earlier version of it was in force. But its entry does not replace that of another configuration, which is in force.
func (s *session) registered(configurations []*v1alpha1.InitializerConfiguration) map[string]*v1alpha1.Initializer {
	accepted, rejected := s.divide(configurations)
	all := byName(rejected)
	maps.Copy(all, byName(accepted))
	return all
}

// retry accepts the configurations that kube-apiserver rejected a while ago, and now compiles.
func (s *session) retry(ctx context.Context, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) {
	accepted, rejected := s.divide(configurations)
	for _, c := range rejected {
		last, _ := s.rejectionOf(c)
		if s.Clock.Since(last.at) < retryRejected {
			continue
		}
		if s.try(ctx, append(slices.Clip(accepted), c), exempt) == nil {
			s.rejected.Delete(versionOf(c))
		} else {
			s.rejected.Store(versionOf(c), rejection{last.why, s.Clock.Now()})
		}
	}
}

// try writes the policies in dry runs, so that those in force do not change.
func (s *session) try(ctx context.Context, configurations []*v1alpha1.InitializerConfiguration, exempt *installation.ExemptionList) error {
	all, _, err := compile(configurations, exempt, s.Namespace)
	if err != nil {
		return err
	}
	versions, err := s.read(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.Policy == nil {
			continue
		}
		if err := s.put(ctx, policies, "MutatingAdmissionPolicy", one.Name, one.Policy.Spec, versions, metav1.DryRunAll); err != nil {
			return err
		}
	}
	return nil
}
