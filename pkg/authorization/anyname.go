/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package authorization

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// AnyName returns an authorizer that first asks whether a user has a verb on every object of a resource. The programs that
// send most requests do, and one answer is cached for all names. Without this permission, it asks for the name.
//
// An authorizer of kube-apiserver that denies single names to a user who has the verb on every name has no effect on nsinit.
func AnyName(a authorizer.UnconditionalAuthorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if attributes.IsResourceRequest() && attributes.GetName() != "" {
			if decision, reason, err := a.Authorize(ctx, anyName{attributes}); err == nil && decision == authorizer.DecisionAllow {
				return decision, reason, nil
			}
		}
		return a.Authorize(ctx, attributes)
	})
}

// anyName are the attributes of a request for every object of a resource.
type anyName struct{ authorizer.Attributes }

func (anyName) GetName() string { return "" }
