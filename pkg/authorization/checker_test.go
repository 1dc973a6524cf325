/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package authorization

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestRefusals: a refusal says which permission is missing and which command prints it.
func TestRefusals(t *testing.T) {
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	allowed, failure := "", error(nil)
	c := New(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetResource() == allowed {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", failure
	}))
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	const command = "; to print the roles to grant, run kubectl nsinit rbac approval.example.com"
	refused(c.MayInitialize(ctx, "shop", "approval.example.com"), `user "alice" needs verb "initialize" on namespaces "shop", granted cluster-wide`+command+" --user=USER")
	refused(c.MayFinalize(ctx, "approval.example.com"), `user "alice" needs verb "finalize" on initializers.nsinit.dev "approval.example.com", granted cluster-wide`+command+" --finalizer --user=USER")
	refused(c.MayFinalize(ctx, "kubernetes"), `user "alice" needs verb "finalize" on initializers.nsinit.dev "kubernetes", granted cluster-wide`)
	refused(c.MayImpersonate(ctx, authenticationv1.UserInfo{Username: "portal"}, "bob"), `user "portal" needs verb "impersonate" on creators.nsinit.dev "bob", granted cluster-wide`)
	refused(c.MayOpen(ctx, "shop"), `user "alice" needs verb "open" on namespaces "shop", granted cluster-wide`)
	refused(c.MayRegister(ctx, "approval.example.com"), `user "alice" needs verb "initialize" on initializers.nsinit.dev "approval.example.com", granted cluster-wide`+command+" --user=USER")
	allowed = "namespaces"
	if err := c.MayRegister(ctx, "approval.example.com"); err != nil {
		t.Errorf("with the verb open: %v", err)
	}
	refused(c.MayInitialize(ctx, "shop", "approval.example.com"), `user "alice" needs verb "initialize" on initializers.nsinit.dev "approval.example.com", granted cluster-wide`+command+" --user=USER")
	allowed = "initializers"
	if err := errors.Join(c.MayFinalize(ctx, "approval.example.com"), c.MayRegister(ctx, "approval.example.com")); err != nil {
		t.Error(err)
	}
	failure = errors.New("down")
	if err := c.MayInitialize(ctx, "shop", "approval.example.com"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("without an answer: %v", err)
	}
}
