/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package act_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nsinit/nsinit/pkg/cli/act"
	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

const lifecycles = "namespacelifecycles"

// lifecycle waits for some initializers.
func lifecycle(name string, pending ...string) *v1alpha1.NamespaceLifecycle {
	l := &v1alpha1.NamespaceLifecycle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NamespaceLifecycleSpec{
		NamespaceUID: types.UID(name + "-1"), Initializers: &v1alpha1.NamespaceInitializers{}, Finalizers: []v1alpha1.FinalizerName{"kubernetes"}}}
	for _, initializer := range pending {
		l.Spec.Initializers.Pending = append(l.Spec.Initializers.Pending, v1alpha1.NamespaceInitializer{Name: initializer})
		l.Spec.Plan = append(l.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: initializer}})
	}
	return l
}

// parallel waits for a and b, which act at the same time, and then for c.
func parallel(change ...func(*v1alpha1.NamespaceLifecycle)) *v1alpha1.NamespaceLifecycle {
	l := lifecycle("parallel", "a.example.com", "b.example.com", "c.example.com")
	for i := range 2 {
		l.Spec.Plan[i].Ordering = &v1alpha1.InitializerOrdering{}
	}
	for _, change := range change {
		change(l)
	}
	return l
}

func failed(l *v1alpha1.NamespaceLifecycle) {
	l.Spec.Initializers.FailedInitializer = "b.example.com"
	l.Spec.Initializers.Result = &metav1.Status{Status: metav1.StatusFailure, Message: "no cost\ncentre"}
}

// rest is what is left of the lifecycle of shop after its first initializer.
func rest() *v1alpha1.NamespaceLifecycle {
	l := lifecycle("shop", "a.example.com", "b.example.com")
	l.Spec.Initializers.Pending = l.Spec.Initializers.Pending[1:]
	return l
}

// terminating waits for some participants.
func terminating(name string, participants ...v1alpha1.FinalizerName) *v1alpha1.NamespaceLifecycle {
	l, now := lifecycle(name, "a.example.com"), metav1.NewTime(cmdtesting.Now())
	l.DeletionTimestamp, l.Spec.Finalizers = &now, append(l.Spec.Finalizers, participants...)
	l.Spec.Plan = append(l.Spec.Plan, v1alpha1.PlannedInitializer{RegisteredInitializer: v1alpha1.RegisteredInitializer{Name: "o.example.com", Finalizer: true}})
	return l
}

// over has the lifecycle of shop after its first initializer ended in a state.
func over(state v1alpha1.InitializerState) *cmdtesting.Cluster {
	l := rest()
	l.Status.Initializers = []v1alpha1.InitializerStatus{{Name: "a.example.com", State: state}}
	return cmdtesting.New(l)
}

// failing answers requests for NamespaceLifecycles with errors, as long as there are any.
func failing(verb string, errs ...error) *cmdtesting.Cluster {
	cluster := cmdtesting.New(lifecycle("shop", "a.example.com", "b.example.com"))
	cluster.Nsinit.PrependReactor(verb, lifecycles, func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(errs) == 0 {
			return false, nil, nil
		}
		err := errs[0]
		errs = errs[1:]
		return true, nil, err
	})
	return cluster
}

// recreated conflicts with the first write to a namespace, which then is deleted and created again.
func recreated(first *v1alpha1.NamespaceLifecycle) *cmdtesting.Cluster {
	cluster := cmdtesting.New(first)
	cluster.Nsinit.PrependReactor("update", lifecycles, func(clienttesting.Action) (bool, runtime.Object, error) {
		next := first.DeepCopy()
		next.Spec.NamespaceUID = "shop-2"
		return true, nil, errors.Join(cluster.Nsinit.Tracker().Update(v1alpha1.SchemeGroupVersion.WithResource(lifecycles), next, ""),
			apierrors.NewConflict(v1alpha1.Resource(lifecycles), first.Name, errors.New("changed")))
	})
	return cluster
}

func TestAct(t *testing.T) {
	resource := v1alpha1.SchemeGroupVersion.WithResource(lifecycles).GroupResource()
	forbidden := apierrors.NewForbidden(resource, "shop", errors.New(`User "jane" cannot get`))
	conflict := apierrors.NewConflict(resource, "shop", errors.New("changed"))
	another := `namespace "shop" with the UID shop-1 does not exist: the one with this name has the UID shop-2`
	grant := "an administrator can grant this: kubectl nsinit rbac a.example.com"
	for name, test := range map[string]struct {
		command cmdtesting.Command
		test    cmdtesting.Test
		// subresource is written with what is pending, skipped and in the finalizers, after a conflict twice.
		subresource string
		want        v1alpha1.NamespaceLifecycleSpec
	}{
		"done": {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com"}, Out: "initializer.nsinit.dev/a.example.com done in namespace shop\n"},
			subresource: "initialize", want: rest().Spec},
		"done, dry run": {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com", "--dry-run=server"},
			Out: "initializer.nsinit.dev/a.example.com done in namespace shop (server dry run)\n"}, subresource: "initialize", want: rest().Spec},
		"done, the name": {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com", "-o", "name"}, Out: "namespacelifecycle.nsinit.dev/shop\n"},
			subresource: "initialize", want: rest().Spec},
		"done, a field": {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com", "--output=jsonpath={.kind} {.spec.initializers.pending}"},
			Out: `NamespaceLifecycle [{"name":"b.example.com"}]`}, subresource: "initialize", want: rest().Spec},
		"done, after a conflict": {command: act.NewDoneCommand, test: cmdtesting.Test{Cluster: failing("update", conflict), Args: []string{"shop", "a.example.com"},
			Out: "initializer.nsinit.dev/a.example.com done in namespace shop\n"}, subresource: "initialize", want: rest().Spec},
		"skip": {command: act.NewSkipCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com"}, Out: "initializer.nsinit.dev/a.example.com skipped in namespace shop\n"},
			subresource: "initialize", want: func() v1alpha1.NamespaceLifecycleSpec {
				spec := rest().Spec
				spec.Skipped = []string{"a.example.com"}
				return spec
			}()},
		"fail": {command: act.NewFailCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com", "--message=no cost centre"}, Out: "initializer.nsinit.dev/a.example.com failed in namespace shop\n"},
			subresource: "initialize", want: func() v1alpha1.NamespaceLifecycleSpec {
				spec := lifecycle("shop", "a.example.com", "b.example.com").Spec
				spec.Initializers.FailedInitializer, spec.Initializers.Result = "a.example.com", &metav1.Status{Status: metav1.StatusFailure, Message: "no cost centre"}
				return spec
			}()},
		"done, with the UID": {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com", "--uid=shop-1"},
			Out: "initializer.nsinit.dev/a.example.com done in namespace shop\n"}, subresource: "initialize", want: rest().Spec},
		"done, the second of two that act": {command: act.NewDoneCommand, test: cmdtesting.Test{Cluster: cmdtesting.New(parallel()), Args: []string{"parallel", "b.example.com"},
			Out: "initializer.nsinit.dev/b.example.com done in namespace parallel\n"}, subresource: "initialize",
			want: parallel(func(l *v1alpha1.NamespaceLifecycle) {
				l.Spec.Initializers.Pending = []v1alpha1.NamespaceInitializer{{Name: "a.example.com"}, {Name: "c.example.com"}}
			}).Spec},
		"finalize": {command: act.NewFinalizeCommand, test: cmdtesting.Test{Args: []string{"ending", "p.example.com"}, Out: "initializer.nsinit.dev/p.example.com released in namespace ending\n"},
			subresource: "finalize", want: terminating("ending", "q.example.com").Spec},

		"finalize, another UID": {command: act.NewFinalizeCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com", "--uid=shop-0"},
			Out: `nothing waits for a.example.com: namespace "shop" with the UID shop-0 does not exist: the one with this name has the UID shop-1` + "\n"}},
		"finalize, created again meanwhile": {command: act.NewFinalizeCommand, test: cmdtesting.Test{Cluster: recreated(terminating("shop", "p.example.com")),
			Args: []string{"shop", "p.example.com"}, Out: "nothing waits for p.example.com: " + another + "\n"},
			subresource: "finalize", want: terminating("shop").Spec},
		"done, another UID": {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com", "--uid=shop-0"},
			Err: `namespace "shop" with the UID shop-0 does not exist`}},
		"done, created again meanwhile": {command: act.NewDoneCommand, test: cmdtesting.Test{Cluster: recreated(lifecycle("shop", "a.example.com")),
			Args: []string{"shop", "a.example.com"}, Err: another}},

		"done before": {command: act.NewDoneCommand, test: cmdtesting.Test{Cluster: over("Done"), Args: []string{"shop", "a.example.com"},
			Out: "initializer.nsinit.dev/a.example.com already done in namespace shop\n"}},
		"done before, the name": {command: act.NewDoneCommand, test: cmdtesting.Test{Cluster: over("Done"), Args: []string{"shop", "a.example.com", "--output=name"},
			Out: "namespacelifecycle.nsinit.dev/shop\n"}},
		"skipped before": {command: act.NewSkipCommand, test: cmdtesting.Test{Cluster: over("Skipped"), Args: []string{"shop", "a.example.com"},
			Out: "initializer.nsinit.dev/a.example.com already skipped in namespace shop\n"}},
		"failed before": {command: act.NewFailCommand, test: cmdtesting.Test{Cluster: over("Failed"), Args: []string{"shop", "a.example.com", "--message=no"},
			Out: "initializer.nsinit.dev/a.example.com already failed in namespace shop\n"}},
		"fail, not its turn":    {command: act.NewFailCommand, test: cmdtesting.Test{Args: []string{"shop", "b.example.com", "--message=no"}, Err: `it is not the turn of initializer "b.example.com"`}},
		"fail, without a cause": {command: act.NewFailCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com"}, Err: `required flag(s) "message"`}},
		"done, but it was skipped": {command: act.NewDoneCommand, test: cmdtesting.Test{Cluster: over("Skipped"), Args: []string{"shop", "a.example.com"},
			Err: `namespace "shop" does not wait for initializer "a.example.com", but for b.example.com`}},
		"released before": {command: act.NewFinalizeCommand, test: cmdtesting.Test{Args: []string{"ending", "o.example.com"},
			Out: "initializer.nsinit.dev/o.example.com already released in namespace ending\n"}},
		"released before, and removed": {command: act.NewFinalizeCommand, test: cmdtesting.Test{Args: []string{"none", "a.example.com"},
			Out: "nothing waits for a.example.com: namespace \"none\" does not exist\n"}},

		"not its turn": {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"shop", "b.example.com"}, Err: `it is not the turn of initializer "b.example.com" in namespace "shop": it waits for a.example.com, and it is the turn of a.example.com`}},
		"not its turn, two others act": {command: act.NewDoneCommand, test: cmdtesting.Test{Cluster: cmdtesting.New(parallel()), Args: []string{"parallel", "c.example.com"},
			Err: `it is not the turn of initializer "c.example.com" in namespace "parallel": it waits for a.example.com, b.example.com, and it is the turn of a.example.com, b.example.com`}},
		"failed": {command: act.NewSkipCommand, test: cmdtesting.Test{Cluster: cmdtesting.New(parallel(failed)), Args: []string{"parallel", "a.example.com"},
			Err: `initializer "b.example.com" failed in namespace "parallel", so nsinit deletes the namespace: no cost centre`}},
		"not pending":          {command: act.NewSkipCommand, test: cmdtesting.Test{Args: []string{"shop", "c.example.com"}, Err: `does not wait for initializer "c.example.com", but for a.example.com, b.example.com`}},
		"open":                 {command: act.NewSkipCommand, test: cmdtesting.Test{Args: []string{"open", "a.example.com"}, Err: `namespace "open" waits for no initializer`}},
		"deleted":              {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"ending", "a.example.com"}, Err: "every initializer's turn is over"}},
		"not deleted":          {command: act.NewFinalizeCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com"}, Err: `namespace "shop" is not being deleted`}},
		"no participant":       {command: act.NewFinalizeCommand, test: cmdtesting.Test{Args: []string{"ending", "a.example.com"}, Err: `does not wait for participant "a.example.com", but for p.example.com, q.example.com`}},
		"no namespace":         {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"none", "a.example.com"}, Err: `namespace "none" does not exist`}},
		"no lifecycle":         {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"exempt", "a.example.com"}, Err: `namespace "exempt" has no NamespaceLifecycle; run kubectl nsinit why exempt`}},
		"a dry run of clients": {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com", "--dry-run=client"}, Err: `invalid argument "client" for "--dry-run" flag: must be "none" or "server"`}},
		"no such format":       {command: act.NewDoneCommand, test: cmdtesting.Test{Args: []string{"shop", "a.example.com", "-o", "xml"}, Err: `output format "xml", allowed formats are: go-template`}},
		"may not read": {command: act.NewDoneCommand, test: cmdtesting.Test{Cluster: failing("get", forbidden), Args: []string{"shop", "a.example.com"},
			Err: `User "jane" cannot get; ` + grant + " --user=USER | kubectl apply -f -"}},
		"may not write": {command: act.NewDoneCommand, test: cmdtesting.Test{Cluster: failing("update", forbidden), Args: []string{"shop", "a.example.com"}, Err: grant + " --user=USER"}},
		"may not finalize": {command: act.NewFinalizeCommand, test: cmdtesting.Test{Cluster: failing("get", forbidden), Args: []string{"shop", "a.example.com"},
			Err: grant + " --finalizer --user=USER"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.test.Cluster == nil {
				test.test.Cluster = cmdtesting.New(lifecycle("shop", "a.example.com", "b.example.com"), lifecycle("open"), terminating("ending", "p.example.com", "q.example.com"),
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "exempt"}})
			}
			test.test.Check(t, test.command)
			var written []v1alpha1.NamespaceLifecycleSpec
			for _, action := range test.test.Cluster.Nsinit.Actions() {
				if update, ok := action.(clienttesting.UpdateActionImpl); ok && test.test.Err == "" {
					if update.GetSubresource() != test.subresource || (update.UpdateOptions.DryRun != nil) != slices.Contains(test.test.Args, "--dry-run=server") {
						t.Errorf("wrote %s with %+v", update.GetSubresource(), update.UpdateOptions)
					}
					written = append(written, update.Object.(*v1alpha1.NamespaceLifecycle).Spec)
				}
			}
			if test.subresource == "" {
				return
			}
			if diff := cmp.Diff(test.want, written[len(written)-1]); diff != "" {
				t.Errorf("wrote (-want +got):\n%s", diff)
			}
		})
	}
}

// TestComplete: a command offers only namespaces in which it can act, and there only what it accepts.
func TestComplete(t *testing.T) {
	over := lifecycle("failed", "a.example.com")
	failed(over)
	cluster := cmdtesting.New(lifecycle("shop", "a.example.com", "b.example.com"), parallel(), lifecycle("open"), over, terminating("ending", "p.example.com", "q.example.com"), terminating("emptied"))
	for name, test := range map[string]struct {
		command cmdtesting.Command
		args    []string
		want    []string
	}{
		"done":                      {act.NewDoneCommand, nil, []string{"parallel", "shop"}},
		"skip":                      {act.NewSkipCommand, nil, []string{"parallel", "shop"}},
		"finalize":                  {act.NewFinalizeCommand, nil, []string{"ending"}},
		"the one that has its turn": {act.NewSkipCommand, []string{"shop"}, []string{"a.example.com"}},
		"those that have it":        {act.NewSkipCommand, []string{"parallel"}, []string{"a.example.com", "b.example.com"}},
		"participants":              {act.NewFinalizeCommand, []string{"ending"}, []string{"p.example.com", "q.example.com"}},
		"nothing after that":        {act.NewDoneCommand, []string{"shop", "a.example.com"}, nil},
		"nothing of no namespace":   {act.NewDoneCommand, []string{"none"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, cluster.Complete(t, test.command, test.args...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
