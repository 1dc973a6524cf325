//go:build e2e

/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1/helper"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
	"github.com/nsinit/nsinit/sdk/initializer/conformance"
	"github.com/nsinit/nsinit/test/e2e/framework"
)

const (
	// markInitializer sets the label mark of pods and Jobs in namespaces with this label.
	markInitializer = "mark.example.com"
	mark            = "e2e.example.com/marked"
)

// TestObjectConformance runs the suite for authors of initializers on one of pods and Jobs, with the rights that kubectl nsinit rbac
// prints.
func TestObjectConformance(t *testing.T) {
	c := framework.Connect(t)
	registerMark(t, c)
	c.ApplyInput(t, c.MustPlugin(t, "rbac", markInitializer, "--objects", "--service-account=mark:mark"))
	markSuite(t, c, c.As("system:serviceaccount:mark:mark"), "none", framework.Patience)
}

// TestObjectConformanceFindsFaults: the suite fails for each defective initializer of objects, in the test for that defect, with a
// message that names it. It fails in a separate process.
func TestObjectConformanceFindsFaults(t *testing.T) {
	framework.Environment(t)
	c := framework.Connect(t)
	registerMark(t, c)
	run := func(t *testing.T, fault, tests string) (string, error) {
		t.Helper()
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperBadObjectInitializer$/^Objects$"+tests, "-test.v")
		command.Env = append(c.Environ(), badInitializer+"="+fault)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	// A message that an object still waits names a fault, because the suite passes with the same settings without a fault.
	for fault, want := range map[string]struct{ test, message string }{
		"does nothing":         {"jobs/Order", "the initializer has removed itself from second, but: the label does not exist"},
		"acts before its turn": {"pods/Order", "the initializer acted on first before its turn"},
		"removes other gates":  {"pods/Crash", "the initializer removed the gate other.conformance.nsinit.dev/gate of pod object-"},
		"removes other names":  {"jobs/Order", `/first (jobs) waits for ["after.conformance.nsinit.dev"]: it waits for []`},
		"gives up":             {"jobs/Retry", `/first (jobs) waits for []: it waits for ["mark.example.com"]`},
		"cannot act twice":     {"pods/Crash", `(pods) waits for []: it waits for ["mark.example.com"]`},
		"does not report":      {"Served", "until the initializer reports that it is served: its last report is of"},
	} {
		t.Run(fault, func(t *testing.T) {
			out, err := run(t, fault, "/^"+strings.ReplaceAll(want.test, "/", "$/^")+"$")
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(out, "--- FAIL: TestHelperBadObjectInitializer/Objects/"+want.test) || !strings.Contains(out, want.message) {
				t.Errorf("%v, want test %s to fail with %q\n%s", err, want.test, want.message, out)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		out, err := run(t, "none", "")
		if err != nil || !strings.Contains(out, "--- PASS: TestHelperBadObjectInitializer/Objects/pods/Crash") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// TestHelperBadObjectInitializer runs the suite on an initializer with a fault, for TestObjectConformanceFindsFaults. It does nothing by
// itself.
func TestHelperBadObjectInitializer(t *testing.T) {
	if fault := os.Getenv(badInitializer); fault != "" {
		c := framework.Connect(t)
		markSuite(t, c, c.Admin, fault, 40*time.Second) // the suite waits this long for what the initializer does not do
	}
}

// registerMark installs the component and registers the initializer, until the test ends. It waits until the configuration is in force.
func registerMark(t *testing.T, c *framework.Cluster) {
	t.Helper()
	if _, err := installObjects(t, c); err != nil {
		t.Fatal(err)
	}
	entry := objectInitializer(markInitializer, "", "pods", "jobs")
	entry.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{mark: ""}}
	client, name := c.Nsinit.NsinitV1alpha1().InitializerConfigurations(), framework.UniqueName("mark")
	if _, err := client.Create(t.Context(), &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Initializers: []v1alpha1.Initializer{entry}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	waitInForce(t, c, name)
}

// markSuite runs the suite on the initializer, as a user.
func markSuite(t *testing.T, c *framework.Cluster, config *rest.Config, fault string, patience time.Duration) {
	t.Helper()
	core, nsinit := kubernetes.NewForConfigOrDie(config), versioned.NewForConfigOrDie(config)
	if fault == "does not report" {
		nsinit = versioned.NewForConfigOrDie(c.As("e2e-without-rights"))
	}
	act := func(ctx context.Context, object initializer.Object) error {
		switch _, marked := object.GetLabels()[mark]; {
		case fault == "does nothing":
			return nil
		case marked && fault == "cannot act twice":
			return errors.New("the label exists")
		}
		err := patchObject(ctx, core, object, `{"metadata":{"labels":{"`+mark+`":""}}}`)
		switch _, isPod := object.(*corev1.Pod); {
		case err != nil && fault == "gives up":
			return initializer.Fail(err)
		case err != nil:
			return err
		case fault == "removes other gates" && isPod:
			return patchObject(ctx, core, object, ungate)
		case fault == "removes other names" && !isPod:
			return patchObject(ctx, core, object, `{"metadata":{"labels":{"`+v1alpha1.PendingPrefix+`after.conformance.nsinit.dev":null}}}`)
		}
		select { // there is more to do
		case <-time.After(500 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	conformance.Run(t, conformance.Suite{
		Config: c.Admin, Name: markInitializer, Patience: patience, Namespaces: 12,
		Start: func(t *testing.T) func() {
			runner, err := initializer.New(initializer.Options{Name: markInitializer, Core: core, Nsinit: nsinit, InitializeObject: act})
			if err != nil {
				t.Fatal(err)
			}
			ctx, kill := context.WithCancel(context.Background())
			t.Cleanup(kill)
			go func() { _ = runner.Run(ctx) }()
			if fault == "acts before its turn" {
				go markAll(ctx, core, act)
			}
			return kill
		},
		CheckObject: func(_ context.Context, object initializer.Object) error {
			if _, marked := object.GetLabels()[mark]; !marked {
				return errors.New("the label does not exist")
			}
			return nil
		},
		Create: func(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Namespace, error) {
			return client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mark: ""}}}, metav1.CreateOptions{})
		},
	})
}

func patchObject(ctx context.Context, core kubernetes.Interface, object initializer.Object, patch string) (err error) {
	if _, ok := object.(*corev1.Pod); ok {
		_, err = core.CoreV1().Pods(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	} else {
		_, err = core.BatchV1().Jobs(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	return err
}

// markAll acts on every pod that waits for the initializer, also if it is the turn of another one.
func markAll(ctx context.Context, core kubernetes.Interface, act initializer.ObjectFunc) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		list, err := core.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, pod := range list.Items {
			if slices.Contains(helper.PendingOfObject(&pod), markInitializer) {
				_ = act(ctx, &pod)
			}
		}
	}
}
