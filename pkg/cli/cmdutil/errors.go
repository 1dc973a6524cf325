/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cmdutil

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	utilapierrors "github.com/nsinit/nsinit/sdk/util/apierrors"
	"github.com/nsinit/nsinit/sdk/util/printable"
)

// ExitCode is the exit code of a command that prints an answer, not an error.
type ExitCode int

const (
	// ExitWarning is the exit code if something is in progress, or works, but needs attention.
	ExitWarning ExitCode = 2
	// ExitProblem is the exit code if a user has to act.
	ExitProblem ExitCode = 3
)

// Error implements error.
func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// NoNamespace is the error for a namespace that does not exist.
func NoNamespace(name string) error { return fmt.Errorf("namespace %q does not exist", name) }

// Permission adds to an error for a missing permission the command that prints it: kubectl nsinit rbac with rbacArgs, which are
// words of a shell.
func Permission(err error, rbacArgs string) error {
	if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "kubectl nsinit rbac ") {
		return err
	}
	return fmt.Errorf("%w; an administrator can grant this: kubectl nsinit rbac %s --user=USER | kubectl apply -f -", err, rbacArgs)
}

// NoLifecycle is the error for a namespace without a NamespaceLifecycle. It says why there is none.
type NoLifecycle string

// Error implements error.
func (n NoLifecycle) Error() string { return string(n) }

// Lifecycle returns the NamespaceLifecycle of a namespace. Errors are a NoLifecycle, or say which command prints the permission
// to read it.
func (c *Clients) Lifecycle(ctx context.Context, namespace, rbacArgs string) (*v1alpha1.NamespaceLifecycle, error) {
	lifecycle, err := c.Nsinit.NsinitV1alpha1().NamespaceLifecycles().Get(ctx, namespace, metav1.GetOptions{})
	if !utilapierrors.IsAbsent(err) {
		return lifecycle, Permission(err, rbacArgs)
	}
	if _, err := c.Core.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil, NoLifecycle(NoNamespace(namespace).Error())
	}
	return nil, NoLifecycle(fmt.Sprintf("namespace %q has no NamespaceLifecycle; run kubectl nsinit why %s", namespace, printable.WordOr(namespace, "NAMESPACE")))
}
