//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nsinit/nsinit/test/e2e/framework"
)

// TestLostLease: nsinit-controller-manager exits when it loses its lease. The control plane
// restarts it each time, and it opens the namespaces that were created meanwhile.
func TestLostLease(t *testing.T) {
	const program = "nsinit-controller-manager"
	c := framework.Connect(t)
	c.Dev(t, "stop", program) // what it restarted before is not counted
	leases := c.Core.CoordinationV1().Leases("nsinit-system")
	// A test before this one can have killed the holder, whose name the lease then keeps.
	if err := leases.Delete(t.Context(), program, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	c.Dev(t, "start", program)
	pid := func() string {
		data, _ := os.ReadFile(filepath.Join(c.Dir, program+".pid"))
		return strings.TrimSpace(string(data))
	}
	for i := range 3 {
		framework.Eventually(t, "the controller leads", func(ctx context.Context) error {
			lease, err := leases.Get(ctx, program, metav1.GetOptions{})
			if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
				err = errors.New("the lease has no holder")
			}
			return err
		})
		leader := pid()
		if _, err := leases.Patch(t.Context(), program, types.MergePatchType, []byte(`{"spec":{"holderIdentity":"another"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		namespace := c.CreateNamespace(t, c.Admin)
		framework.Eventually(t, "the controller exits and is restarted", func(context.Context) error {
			if now := pid(); now == "" || now == leader {
				return fmt.Errorf("its pid was %s and is %q", leader, now)
			}
			return nil
		})
		// The new process waits until the lease expires. Without one it leads immediately.
		if err := leases.Delete(t.Context(), program, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		c.WaitReady(t, namespace.Name)
		if want, status := fmt.Sprintf("(restart %d)", i+1), c.Dev(t, "status"); !strings.Contains(status, program+" exited (exit status 1)") || !strings.Contains(status, want) {
			t.Errorf("dev status does not show %q:\n%s", want, status)
		}
	}
	log, err := os.ReadFile(filepath.Join(c.Dir, program+".log"))
	if err != nil || !strings.Contains(string(log), program+" exited (exit status 1)") {
		t.Errorf("the log of the program does not show that it was restarted: %v", err)
	}
}
