/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package authorization checks nsinit's own verbs with the authorizer of the server, such as which user
// may act as which initializer in which namespace. RBAC rules on nsinit's resources cannot express
// these. The authorizer caches its answers for some seconds.
package authorization

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// Refusal returns the response to a request that a Checker refused: Forbidden, or the API status that
// the Checker returned because the authorizer did not answer.
func Refusal(resource schema.GroupResource, name string, err error) error {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status
	}
	return apierrors.NewForbidden(resource, name, err)
}

// Checker checks whether the user of a request has one of nsinit's own verbs. Each method returns nil if
// so, and else an error with the missing rule, and the command that prints it if there is one. If the
// authorizer does not answer, the error is an API status.
type Checker struct {
	authorizer authorizer.UnconditionalAuthorizer
}

// New returns a Checker on an authorizer.
func New(a authorizer.UnconditionalAuthorizer) *Checker {
	return &Checker{authorizer: AnyName(a)}
}

// MayInitialize checks whether the user may act as an initializer in a namespace.
func (c *Checker) MayInitialize(ctx context.Context, namespace, initializer string) error {
	if err := c.check(ctx, v1alpha1.VerbInitialize, "", "namespaces", namespace, printable.WordOr(initializer, "INITIALIZER")); err != nil {
		return err
	}
	return c.MayReport(ctx, initializer)
}

// MayReport checks whether the user may report that it serves an initializer. The right to initialize
// namespaces is not needed.
func (c *Checker) MayReport(ctx context.Context, initializer string) error {
	return c.check(ctx, v1alpha1.VerbInitialize, v1alpha1.GroupName, v1alpha1.ResourceInitializers, initializer, printable.WordOr(initializer, "INITIALIZER"))
}

// MayRegister checks whether the user may register an initializer: one that may act as it, or has the verb open in all
// namespaces. The right to initialize namespaces is not needed.
func (c *Checker) MayRegister(ctx context.Context, initializer string) error {
	err := c.MayReport(ctx, initializer)
	if err != nil && c.MayOpen(ctx, "") == nil {
		return nil
	}
	return err
}

// MayFinalize checks whether the user may act as a participant of a deletion.
func (c *Checker) MayFinalize(ctx context.Context, participant string) error {
	rbac := printable.WordOr(participant, "PARTICIPANT") + " --finalizer"
	if participant == string(v1alpha1.FinalizerKubernetes) { // nsinit's own finalizer
		rbac = ""
	}
	return c.check(ctx, v1alpha1.VerbFinalize, v1alpha1.GroupName, v1alpha1.ResourceInitializers, participant, rbac)
}

// MayOpen checks whether the user has the verb open, which nsinit-controller-manager has, in a
// namespace. An empty name means all namespaces.
func (c *Checker) MayOpen(ctx context.Context, namespace string) error {
	return c.check(ctx, v1alpha1.VerbOpen, "", "namespaces", namespace, "")
}

// MayImpersonate checks whether a user, of whom kube-apiserver told a webhook, may create namespaces on behalf of the user name.
func (c *Checker) MayImpersonate(ctx context.Context, creator authenticationv1.UserInfo, name string) error {
	extra := map[string][]string{}
	for key, values := range creator.Extra {
		extra[key] = values
	}
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: creator.Username, UID: creator.UID, Groups: creator.Groups, Extra: extra})
	return c.check(ctx, v1alpha1.VerbImpersonate, v1alpha1.GroupName, v1alpha1.ResourceCreators, name, "")
}

// check checks a verb without a namespace, so that only a cluster-wide binding grants it. A refusal
// names kubectl nsinit rbac with the arguments in rbac, if any.
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
		return utilapierrors.NewUnavailable(fmt.Errorf("cannot check whether user %q has verb %q on %s: %w", requester.GetName(), verb, what, err))
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
	qualified := schema.GroupResource{Group: group, Resource: resource}.String()
	if name == "" {
		return qualified
	}
	return fmt.Sprintf("%s %q", qualified, name)
}
