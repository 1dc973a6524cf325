/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package act_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/cli/act"
	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// cluster has an open namespace, one that joe froze, one that jane froze, and one that was unfrozen. Its user is jane.
func cluster() *cmdtesting.Cluster {
	frozen, by := map[string]string{v1alpha1.LabelFrozen: "true"}, func(name string) map[string]string {
		return map[string]string{v1alpha1.AnnotationFrozenBy: name, v1alpha1.AnnotationFrozenReason: "audit"}
	}
	unfrozen := by("joe")
	unfrozen[v1alpha1.AnnotationUnfrozenBy], unfrozen[v1alpha1.AnnotationUnfrozenReason] = "joe", "over"
	c := cmdtesting.New(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "depot", Labels: frozen, Annotations: by("joe")}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: frozen, Annotations: by("jane")}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ending", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{"a/b"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "thawed", Annotations: unfrozen}})
	c.Core.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "jane"}}}, nil
	})
	return c
}

// overtaken freezes the namespace shop for joe before the first patch, which then conflicts.
func overtaken() *cmdtesting.Cluster {
	c := cluster()
	c.Core.PrependReactor("patch", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource := corev1.Resource("namespaces")
		live, err := c.Core.Tracker().Get(resource.WithVersion("v1"), "", "shop")
		shop, ok := live.(*corev1.Namespace)
		patch, isPatch := action.(clienttesting.PatchAction)
		if err != nil || !ok || !isPatch || !strings.Contains(string(patch.GetPatch()), `"resourceVersion":"`+shop.ResourceVersion+`"`) {
			return false, nil, nil
		}
		shop = shop.DeepCopy()
		shop.Labels[v1alpha1.LabelFrozen], shop.Annotations = "true", map[string]string{v1alpha1.AnnotationFrozenBy: "joe", v1alpha1.AnnotationFrozenReason: "first"}
		if err := c.Core.Tracker().Update(resource.WithVersion("v1"), shop, ""); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewConflict(resource, "shop", errors.New("it has changed"))
	})
	return c
}

// refusing refuses patches.
func refusing(err error) *cmdtesting.Cluster {
	c := cluster()
	c.Core.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	return c
}

// unknown does not say who the user is.
func unknown() *cmdtesting.Cluster {
	c := cluster()
	c.Core.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no rights") })
	return c
}

func TestFreeze(t *testing.T) {
	resource := corev1.Resource("namespaces")
	annotations := func(by, reason string, unfrozen ...string) map[string]string {
		all := map[string]string{v1alpha1.AnnotationFrozenBy: by, v1alpha1.AnnotationFrozenReason: reason}
		for i, key := range []string{v1alpha1.AnnotationUnfrozenBy, v1alpha1.AnnotationUnfrozenReason}[:len(unfrozen)] {
			all[key] = unfrozen[i]
		}
		return all
	}
	open, label := map[string]string{"team": "a"}, map[string]string{v1alpha1.LabelFrozen: "true"}
	frozen := metav1.ObjectMeta{Labels: map[string]string{"team": "a", v1alpha1.LabelFrozen: "true"}, Annotations: annotations("jane", "audit")}
	for name, test := range map[string]struct {
		command cmdtesting.Command
		test    cmdtesting.Test
		want    metav1.ObjectMeta
	}{
		"freeze":     {act.NewFreezeCommand, cmdtesting.Test{Args: []string{"shop", "--reason=audit"}, Out: "namespace/shop frozen\n"}, frozen},
		"a dry run":  {act.NewFreezeCommand, cmdtesting.Test{Args: []string{"shop", "--reason=audit", "--dry-run=server"}, Out: "namespace/shop frozen (server dry run)\n"}, frozen},
		"the name":   {act.NewFreezeCommand, cmdtesting.Test{Args: []string{"shop", "--reason=audit", "-o", "name"}, Out: "namespace/shop\n"}, frozen},
		"again":      {act.NewFreezeCommand, cmdtesting.Test{Args: []string{"thawed", "--reason=two"}, Out: "namespace/thawed frozen\n"}, metav1.ObjectMeta{Labels: label, Annotations: annotations("jane", "two")}},
		"the same":   {act.NewFreezeCommand, cmdtesting.Test{Args: []string{"mine", "--reason=audit"}, Out: "namespace/mine frozen\n"}, metav1.ObjectMeta{Labels: label, Annotations: annotations("jane", "audit")}},
		"overwrite":  {act.NewFreezeCommand, cmdtesting.Test{Args: []string{"depot", "--reason=two", "--overwrite"}, Out: "namespace/depot frozen\n"}, metav1.ObjectMeta{Labels: label, Annotations: annotations("jane", "two")}},
		"unfreeze":   {act.NewUnfreezeCommand, cmdtesting.Test{Args: []string{"depot", "--reason=over"}, Out: "namespace/depot unfrozen\n"}, metav1.ObjectMeta{Annotations: annotations("joe", "audit", "jane", "over")}},
		"no reason":  {act.NewUnfreezeCommand, cmdtesting.Test{Args: []string{"depot"}, Out: "namespace/depot unfrozen\n"}, metav1.ObjectMeta{Annotations: annotations("joe", "audit", "jane")}},
		"not frozen": {act.NewUnfreezeCommand, cmdtesting.Test{Args: []string{"shop", "--reason=over"}, Out: "namespace/shop was not frozen\n"}, metav1.ObjectMeta{Labels: open}},

		"ending": {act.NewFreezeCommand, cmdtesting.Test{Args: []string{"ending", "--reason=audit"}, Out: "namespace/ending frozen\n",
			ErrOut: "Warning: namespace \"ending\" is being deleted: what is left of its content is kept until you unfreeze it\n"}, metav1.ObjectMeta{Labels: label, Annotations: annotations("jane", "audit")}},

		"another user": {command: act.NewFreezeCommand, test: cmdtesting.Test{Args: []string{"depot", "--reason=audit"},
			Err: `namespace "depot" is already frozen: user "joe" froze the namespace: audit; to replace the user and the reason, use --overwrite`}},
		"another reason":    {command: act.NewFreezeCommand, test: cmdtesting.Test{Args: []string{"mine", "--reason=two"}, Err: `user "jane" froze the namespace: audit`}},
		"meanwhile":         {command: act.NewFreezeCommand, test: cmdtesting.Test{Cluster: overtaken(), Args: []string{"shop", "--reason=two"}, Err: `user "joe" froze the namespace: first`}},
		"freeze, no reason": {command: act.NewFreezeCommand, test: cmdtesting.Test{Args: []string{"shop"}, Err: "--reason is missing"}},
		"no user":           {command: act.NewFreezeCommand, test: cmdtesting.Test{Cluster: unknown(), Args: []string{"shop", "--reason=audit"}, Err: "cannot determine your user name: no rights"}},
		"no namespace":      {command: act.NewUnfreezeCommand, test: cmdtesting.Test{Args: []string{"none"}, Err: `namespace "none" does not exist`}},
		"may not": {command: act.NewFreezeCommand, test: cmdtesting.Test{Cluster: refusing(apierrors.NewForbidden(resource, "shop", errors.New("no"))), Args: []string{"shop", "--reason=audit"},
			Err: "kubectl create clusterrolebinding nsinit-freeze-USER --clusterrole=nsinit:freeze --user=USER"}},
		"refused": {command: act.NewFreezeCommand, test: cmdtesting.Test{Cluster: refusing(errors.New("too long")), Args: []string{"shop", "--reason=audit"}, Err: "too long"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.test.Cluster == nil {
				test.test.Cluster = cluster()
			}
			test.test.Check(t, test.command)
			if test.test.Err != "" {
				return
			}
			live, err := test.test.Cluster.Core.CoreV1().Namespaces().Get(t.Context(), test.test.Args[0], metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := metav1.ObjectMeta{Labels: live.Labels, Annotations: live.Annotations}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestComplete: each command offers the namespaces that it changes.
func TestCompleteFreeze(t *testing.T) {
	for name, test := range map[string]struct {
		command cmdtesting.Command
		want    []string
	}{"freeze": {act.NewFreezeCommand, []string{"ending", "shop", "thawed"}}, "unfreeze": {act.NewUnfreezeCommand, []string{"depot", "mine"}}} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, cluster().Complete(t, test.command)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
