/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package authorization asks the cluster's authorizer the questions that RBAC rules on
// nsinit's own resources cannot express: who may act as which initializer, in which
// namespace. The answers come from the authorizer that the server was built with,
// which caches them for some seconds.
package authorization

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/pkg/util/apierrors"
)

// Refusal returns the answer to a request for which a Checker said no: that it is forbidden,
// or that nobody could tell.
func Refusal(resource schema.GroupResource, name string, err error) error {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status
	}
	return apierrors.NewForbidden(resource, name, err)
}

// Checker answers whether the user of a request holds one of nsinit's own verbs. Each
// question returns nil for yes, and for no an error that says which rule is missing and, where there is one, which
// command prints it. Where the authorizer does not answer, the error is an API status that says so.
type Checker struct {
	authorizer authorizer.UnconditionalAuthorizer
}

// New returns a Checker that asks the given authorizer.
func New(a authorizer.UnconditionalAuthorizer) *Checker {
	return &Checker{authorizer: a}
}

// MayInitialize answers whether the user may act as the named initializer in the named
// namespace.
func (c *Checker) MayInitialize(ctx context.Context, namespace, initializer string) error {
	if err := c.check(ctx, v1alpha1.VerbInitialize, "", "namespaces", namespace, initializer); err != nil {
		return err
	}
	return c.check(ctx, v1alpha1.VerbInitialize, v1alpha1.GroupName, v1alpha1.ResourceInitializers, initializer, initializer)
}

// MayFinalize answers whether the user may act as the named participant of a deletion.
func (c *Checker) MayFinalize(ctx context.Context, participant string) error {
	rbac := participant + " --finalizer"
	if participant == string(v1alpha1.FinalizerKubernetes) { // which is nsinit's own
		rbac = ""
	}
	return c.check(ctx, v1alpha1.VerbFinalize, v1alpha1.GroupName, v1alpha1.ResourceInitializers, participant, rbac)
}

// MayOpen answers whether the user has the privilege of nsinit's own controller in the
// named namespace. An empty name asks for all namespaces.
func (c *Checker) MayOpen(ctx context.Context, namespace string) error {
	return c.check(ctx, v1alpha1.VerbOpen, "", "namespaces", namespace, "")
}

// check leaves the namespace of the question empty, so that only a cluster-wide
// binding can answer it with yes. A refusal names kubectl nsinit rbac with the arguments in rbac, if any.
func (c *Checker) check(ctx context.Context, verb, group, resource, name, rbac string) error {
	requester, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return errors.New("the request carries no user")
	}
	decision, reason, err := c.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            requester,
		Verb:            verb,
		APIGroup:        group,
		APIVersion:      "*",
		Resource:        resource,
		Name:            name,
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	what := describe(group, resource, name)
	if err != nil {
		return utilapierrors.NewUnavailable(fmt.Errorf("could not find out whether user %q has verb %q on %s: %w", requester.GetName(), verb, what, err))
	}
	if reason != "" {
		reason = ": " + reason
	}
	if rbac != "" {
		reason += "; to print the roles to grant, run kubectl nsinit rbac " + rbac + " --user=USER"
	}
	return fmt.Errorf("user %q needs verb %q on %s, granted cluster-wide%s", requester.GetName(), verb, what, reason)
}

func describe(group, resource, name string) string {
	if group != "" {
		resource += "." + group
	}
	if name == "" {
		return resource
	}
	return fmt.Sprintf("%s %q", resource, name)
}
