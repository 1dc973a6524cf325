//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestControllerProfiles: profiles of nsinit-controller-manager are for those who may read them.
func TestControllerProfiles(t *testing.T) {
	c := framework.Share(t)
	get := func(ctx context.Context, config *rest.Config) error {
		return versioned.NewForConfigOrDie(config).Discovery().RESTClient().Get().AbsPath("/debug/pprof/heap").Do(ctx).Error()
	}
	administrator := c.DirectController(t)
	if err := get(t.Context(), administrator); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	_, account := c.ServiceAccount(t)
	stranger := rest.AnonymousClientConfig(administrator)
	stranger.BearerToken, stranger.Dial = account.BearerToken, administrator.Dial
	if err := get(t.Context(), stranger); !apierrors.IsForbidden(err) {
		t.Errorf("a user without permissions: %v", err)
	}
}
