/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"context"
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nsinit/nsinit/pkg/apis/nsinit/v1alpha1"
)

// ServerVersion reads the version of nsinit-apiserver from its OpenAPI document. kube-apiserver forwards requests for this
// document, but not for /version.
func (c *Clients) ServerVersion(ctx context.Context) (string, error) {
	result := c.REST.Get().AbsPath("/openapi/v3/apis/"+v1alpha1.SchemeGroupVersion.String()).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx)
	if err := result.Error(); apierrors.IsNotFound(err) {
		return "", errors.New("the API group nsinit.dev does not exist: nsinit is not installed, or does not run; run kubectl nsinit check")
	} else if err != nil {
		return "", err
	}
	data, err := result.Raw()
	if err != nil {
		return "", err
	}
	var document struct{ Info struct{ Version string } }
	if err := json.Unmarshal(data, &document); err != nil {
		return "", err
	}
	return document.Info.Version, nil
}
