/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package population

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestRepair: an object that cannot be changed is replaced if it is in the place of one that was applied, or immutable, and if the
// new one would be accepted.
func TestRepair(t *testing.T) {
	names := corev1.Resource("configmaps")
	invalid := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "m", nil)
	taken, quota := apierrors.NewAlreadyExists(names, "m"), apierrors.NewForbidden(names, "m", errors.New("exceeded quota: q"))
	frozen, deleted := liveAs("1", "p", "hook"), liveAs("1", "p", "hook")
	frozen.Object["immutable"] = true
	deleted.Object["immutable"] = true
	deleted.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	replaced := []string{"patch", "get", "create", "delete u", "patch"}
	for name, test := range map[string]struct {
		live      *unstructured.Unstructured
		applied   types.UID
		rejection error
		create    error
		dryRun    bool
		want      []string
		says      string
	}{
		"it can be changed":         {live: frozen, applied: "u", want: []string{"patch"}},
		"it is immutable":           {live: frozen, applied: "u", rejection: invalid, create: taken, want: replaced},
		"it is another one":         {live: liveAs("1", "", "kubectl"), applied: "former", rejection: invalid, create: taken, want: replaced},
		"a dry run":                 {live: frozen, applied: "u", rejection: invalid, create: taken, dryRun: true, want: []string{"patch", "get", "create"}},
		"it is the one":             {live: liveAs("1", "p", "hook"), applied: "u", rejection: invalid, want: []string{"patch", "get"}, says: "is invalid"},
		"nothing was applied":       {live: frozen, rejection: invalid, want: []string{"patch"}, says: "is invalid"},
		"another error":             {live: frozen, applied: "u", rejection: quota, want: []string{"patch"}, says: "exceeded quota"},
		"the manifest is invalid":   {live: frozen, applied: "u", rejection: invalid, create: invalid, want: []string{"patch", "get", "create"}, says: "cannot replace ConfigMap"},
		"a new one would be denied": {live: frozen, applied: "u", rejection: invalid, create: quota, want: []string{"patch", "get", "create"}, says: "exceeded quota: q; it has to be replaced: cannot apply"},
		"it is being deleted":       {live: deleted, applied: "u", rejection: invalid, want: []string{"patch", "get"}, says: "check its finalizers"},
	} {
		t.Run(name, func(t *testing.T) {
			a := applier()
			client, did := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), []string(nil)
			client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
				verb := action.GetVerb()
				if deletion, ok := action.(clienttesting.DeleteActionImpl); ok {
					verb += " " + string(*deletion.DeleteOptions.Preconditions.UID)
				}
				did = append(did, verb)
				switch {
				case verb == "patch" && len(did) == 1 && test.rejection != nil:
					return true, nil, test.rejection
				case verb == "create":
					return true, nil, test.create
				}
				return true, test.live, nil
			})
			a.Client, a.FieldManager, a.DryRun = client, "hook", test.dryRun
			content := liveAs("", "p", "hook")
			content.SetManagedFields(nil)
			stored, err := a.Repair(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "n"}}, content, test.applied)
			if (stored == nil) != (test.says != "") || (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, %v, want %q", stored, err, test.says)
			}
			if diff := cmp.Diff(test.want, did); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}
