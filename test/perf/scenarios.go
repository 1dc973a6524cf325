/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// scenario is something to measure on several arms. In each round, the arms take turns.
type scenario struct {
	name   string
	rounds int
	arms   []arm
	// together measures all arms at one time, on both control planes, which are by whether nsinit runs. Nil: each arm measures.
	together func(ctx context.Context, planes map[bool]*plane, prefix string) (map[string]map[string]float64, error)
}

// arm is one way to do what a scenario measures. An arm whose name ends with "again" does the same as the one before it: their
// difference is the error of the measurement.
type arm struct {
	name string
	// nsinit says that it needs a control plane with nsinit. fresh means one on which nothing was measured before.
	nsinit, fresh bool
	measure       func(ctx context.Context, p *plane, prefix string) (map[string]float64, error)
}

const (
	clients   = 8 // that send requests at the same time
	again     = " again"
	plainArm  = "plain"
	nsinitArm = "nsinit"
	// requiredArm is nsinit as it is installed: namespaces wait for their required objects, too.
	requiredArm = "nsinit, with required objects"

	content = "content" // the name of each object of populate
	tenant  = "alice"   // the subject of its RoleBinding

	crdArm        = "CRD"
	aggregatedArm = "aggregated"
)

// scenarios are in the order in which they run.
func scenarios() []scenario {
	storm := arm{name: nsinitArm, nsinit: true, measure: stormOf(334, initializers{count: 1, write: true}, readySigns())}
	plainStorm := arm{name: plainArm, measure: stormOf(334, initializers{}, plainSigns())}
	all := []scenario{
		{name: "storm", rounds: 3, arms: []arm{plainStorm, repeated(plainStorm), storm, repeated(storm)}},
		{name: "thousand", rounds: 2, arms: []arm{
			{name: plainArm, measure: stormOf(1000, initializers{}, plainSigns()[:1])},
			{name: nsinitArm, nsinit: true, measure: withoutRequiredObjects(stormOf(1000, initializers{count: 1}, readySigns()))},
		}},
		{name: "latency", rounds: 3, arms: []arm{
			latency("0", initializers{}), latency("1", initializers{count: 1}), latency("3", initializers{count: 3}),
			latency("10", initializers{count: 10}), latency("10 in parallel", initializers{count: 10, parallel: true}),
		}},
	}
	for _, count := range []int{20, 60, 300} {
		all = append(all, scenario{name: fmt.Sprintf("population of %d", count), rounds: 3, arms: []arm{
			{name: "client", measure: clientPopulates(count)},
			{name: nsinitArm, nsinit: true, measure: withoutRequiredObjects(populated(count))},
		}})
	}
	others := []arm{{name: nsinitArm, nsinit: true, fresh: true, measure: withoutRequiredObjects(populatedFor)},
		{name: requiredArm, nsinit: true, fresh: true, measure: populatedFor}}
	for _, a := range alternatives() {
		others = append(others, a.arm())
	}
	all = append(all, scenario{name: "alternatives", rounds: 2, arms: others})
	return append(all,
		scenario{name: "API", rounds: 3, arms: []arm{
			{name: crdArm, nsinit: true, fresh: true, measure: requestsTo(custom)}, // a server that measured before may return memory
			{name: aggregatedArm, nsinit: true, fresh: true, measure: requestsTo(aggregated)},
		}},
		scenario{name: "write", rounds: 3, arms: writeArms(), together: writes((*plane).secretUpdates)},
		scenario{name: "write of ConfigMaps", rounds: 5, arms: writeArms(), together: writes((*plane).updates)},
		scenario{name: "write of pods", rounds: 5, arms: writeArms(), together: podWrites},
		scenario{name: "scale", rounds: 1, arms: []arm{{name: plainArm, fresh: true, measure: scale}, {name: nsinitArm, nsinit: true, fresh: true, measure: scale}}},
	)
}

func repeated(one arm) arm {
	one.name += again
	return one
}

// initializers are served by the SDK in a separate process.
type initializers struct {
	count int
	// write lets each write one object. parallel starts all at the same time.
	write, parallel bool
}

// start registers and starts them. stop undoes it.
func (i initializers) start(ctx context.Context, p *plane) (stop func() error, err error) {
	if i.count == 0 {
		return func() error { return nil }, nil
	}
	configuration := &v1alpha1.NamespaceInitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "perf"}}
	args := []string{"initializer", "--kubeconfig=" + p.AdminKubeconfig(), fmt.Sprintf("--write=%t", i.write)}
	for n := range i.count {
		one := v1alpha1.RegisteredInitializer{Name: fmt.Sprintf("perf%d.example.com", n)}
		if i.parallel {
			one.Ordering = &v1alpha1.InitializerOrdering{}
		}
		configuration.Initializers = append(configuration.Initializers, one)
		args = append(args, one.Name)
	}
	all := p.nsinit.NsinitV1alpha1().NamespaceInitializerConfigurations()
	if _, err := all.Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := p.startHelper(ctx, "initializers", program, args...); err != nil {
		return nil, err
	}
	return func() error {
		p.stopHelper("initializers")
		if err := all.Delete(ctx, configuration.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, err := all.Get(ctx, configuration.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
	}, nil
}

// with runs what is measured while initializers are served. Before, it creates a few namespaces, which fill caches and make
// connections.
func (i initializers) with(ctx context.Context, p *plane, prefix string, signs []sign, measured func() (map[string]float64, error)) (figures map[string]float64, err error) {
	const few = 5
	stop, err := i.start(ctx, p)
	if err != nil {
		return nil, err
	}
	if _, _, err := p.burst(ctx, prefix+"-warm", few, 1, signs); err != nil {
		return nil, err
	}
	if figures, err = measured(); err != nil {
		return nil, err
	}
	return figures, stop()
}

// stormOf creates many namespaces.
func stormOf(count int, i initializers, signs []sign) func(context.Context, *plane, string) (map[string]float64, error) {
	return func(ctx context.Context, p *plane, prefix string) (map[string]float64, error) {
		return i.with(ctx, p, prefix, signs, func() (map[string]float64, error) {
			var times []float64
			var all float64
			figures, err := p.measured(ctx, count, func() (err error) {
				times, all, err = p.burst(ctx, prefix, count, clients, signs)
				return err
			})
			if err == nil {
				addTimes(figures, times, all)
			}
			return figures, err
		})
	}
}

// withoutRequiredObjects lets namespaces open before kube-controller-manager has created its objects in them.
func withoutRequiredObjects(measure func(context.Context, *plane, string) (map[string]float64, error)) func(context.Context, *plane, string) (map[string]float64, error) {
	const name = "nsinit-controller-manager"
	return func(ctx context.Context, p *plane, prefix string) (map[string]float64, error) {
		controller := p.Process(name)
		if err := p.Control(ctx, "stop", name); err != nil {
			return nil, err
		}
		if err := p.startHelper(ctx, name, controller.Program, append(slices.Clone(controller.Args), "--required-objects=")...); err != nil {
			return nil, err
		}
		figures, err := measure(ctx, p, prefix)
		p.stopHelper(name)
		if err != nil {
			return nil, err
		}
		return figures, p.Control(ctx, "start", name)
	}
}

// latency creates namespaces one after the other, and compares the time until they are open with that of an update.
func latency(name string, i initializers) arm {
	const count = 40
	return arm{name: name, nsinit: true, measure: withoutRequiredObjects(func(ctx context.Context, p *plane, prefix string) (map[string]float64, error) {
		return i.with(ctx, p, prefix, readySigns(), func() (map[string]float64, error) {
			var times, puts []float64
			update, err := p.updates(ctx, prefix+"-warm-0")
			if err != nil {
				return nil, err
			}
			for n := range count {
				one, _, err := p.burst(ctx, fmt.Sprintf("%s-%d", prefix, n), 1, 1, readySigns())
				if err != nil {
					return nil, err
				}
				times = append(times, one...)
				began := time.Now()
				if err := update(); err != nil {
					return nil, err
				}
				puts = append(puts, time.Since(began).Seconds())
			}
			slices.Sort(times)
			slices.Sort(puts)
			return map[string]float64{"p50, ms": 1000 * median(times), "p50 of an update, ms": 1000 * median(puts)}, nil
		})
	})}
}

// updates creates a ConfigMap, and returns a function that updates it.
func (p *plane) updates(ctx context.Context, namespace string) (func() error, error) {
	configMaps := p.core.CoreV1().ConfigMaps(namespace)
	object, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "update-"}, Data: map[string]string{}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	n := 0
	return func() (err error) {
		n++
		object.Data = map[string]string{"value": fmt.Sprint(n)}
		object, err = configMaps.Update(ctx, object, metav1.UpdateOptions{})
		return err
	}, nil
}

// populated creates namespaces at the same time, each with the four objects of the example of policy-population.
func populated(count int) func(context.Context, *plane, string) (map[string]float64, error) {
	const name = "policy-population"
	return func(ctx context.Context, p *plane, prefix string) (map[string]float64, error) {
		if _, err := p.Admin(ctx, "apply", "-f", p.example()); err != nil {
			return nil, err
		}
		if p.helpers[name] == nil { // it goes on until the end of the scenario: at its start, it checks each namespace that it has populated
			program := p.Process(name)
			if err := p.startHelper(ctx, name, program.Program, program.Args...); err != nil {
				return nil, err
			}
		}
		figures, err := stormOf(count, initializers{}, readySigns())(ctx, p, prefix)
		if err != nil {
			return nil, err
		}
		// The population stays: without it, policy-population would delete the objects.
		_, err = p.Admin(ctx, "delete", "namespaceinitializerconfiguration", "10-policy-population")
		return figures, err
	}
}

// example is a population and its registration.
func (p *plane) example() string {
	return filepath.Join(p.Root, "artifacts", "examples", "policy-population.yaml")
}

// clientPopulates does the same with a client that creates the four objects itself, when it has created the namespace.
func clientPopulates(count int) func(context.Context, *plane, string) (map[string]float64, error) {
	return func(ctx context.Context, p *plane, prefix string) (map[string]float64, error) {
		times, all := make([]float64, count), 0.0
		figures, err := p.measured(ctx, count, func() (err error) {
			all, err = repeat(count, clients, func(i int) error {
				began := time.Now()
				defer func() { times[i] = time.Since(began).Seconds() }()
				return p.populate(ctx, fmt.Sprintf("%s-%d", prefix, i))
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		slices.Sort(times)
		addTimes(figures, times, all)
		return figures, nil
	}
}

// populate creates a namespace and four objects in it.
func (p *plane) populate(ctx context.Context, namespace string) error {
	if err := p.createNamespace(ctx, namespace); err != nil {
		return err
	}
	meta, options := metav1.ObjectMeta{Name: content}, metav1.CreateOptions{}
	for _, create := range []func() error{
		func() error {
			_, err := p.core.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: tenant}}}, options)
			return err
		},
		func() error {
			_, err := p.core.CoreV1().ResourceQuotas(namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: meta,
				Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
					corev1.ResourcePods: resource.MustParse("50"), corev1.ResourcePersistentVolumeClaims: *resource.NewQuantity(quotaOfClaims, resource.DecimalSI)}}}, options)
			return err
		},
		func() error {
			_, err := p.core.CoreV1().LimitRanges(namespace).Create(ctx, &corev1.LimitRange{ObjectMeta: meta,
				Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
					Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}}}}}, options)
			return err
		},
		func() error {
			_, err := p.core.NetworkingV1().NetworkPolicies(namespace).Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: meta,
				Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}}, options)
			return err
		},
	} {
		if err := create(); err != nil {
			return err
		}
	}
	return nil
}

// secretUpdates creates a Secret, and returns a function that updates it.
func (p *plane) secretUpdates(ctx context.Context, namespace string) (func() error, error) {
	secrets := p.core.CoreV1().Secrets(namespace)
	object, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "update-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	n := 0
	return func() (err error) {
		n++
		object.StringData = map[string]string{"value": fmt.Sprint(n)}
		object, err = secrets.Update(ctx, object, metav1.UpdateOptions{})
		return err
	}, nil
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}
}

// podCreation returns a function that creates and deletes a pod.
func (p *plane) podCreation(ctx context.Context, namespace string) func() error {
	pods := p.core.CoreV1().Pods(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}, Spec: podSpec()}
	return func() error {
		created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return pods.Delete(ctx, created.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
}

func objectsGuard(p *plane) string {
	return filepath.Join(p.Root, "artifacts", "deploy", "components", "objects", "guard.yaml")
}

// installObjects installs the component objects, and registers an initializer for the pods of a namespace that does not exist.
func (p *plane) installObjects(ctx context.Context) error {
	guard := objectsGuard(p)
	if _, err := p.Admin(ctx, "apply", "--server-side", "-f", guard, "-f", filepath.Join(filepath.Dir(guard), "rights.yaml")); err != nil {
		return err
	}
	all := p.nsinit.NsinitV1alpha1().InitializerConfigurations()
	if _, err := all.Create(ctx, &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "perf"}, Initializers: []v1alpha1.Initializer{{
		Name:              "perf.example.com",
		Rules:             []v1alpha1.Rule{{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"perf": "another"}},
	}}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		stored, err := all.Get(ctx, "perf", metav1.GetOptions{})
		return err == nil && meta.IsStatusConditionTrue(stored.Status.Conditions, v1alpha1.ConditionInForce), err
	})
}

// removeObjects removes the component again, and waits until kube-apiserver evaluates none of its policies: it keeps a gate in a namespace
// where no initializer acts.
func (p *plane) removeObjects(ctx context.Context, namespace string) error {
	if err := p.nsinit.NsinitV1alpha1().InitializerConfigurations().Delete(ctx, "perf", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if _, err := p.Admin(ctx, "delete", "-f", objectsGuard(p)); err != nil {
		return err
	}
	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: map[string]string{v1alpha1.LabelInitializing: "true"}}, Spec: podSpec()}
	forged.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.PendingPrefix + "forged.example.com"}}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		created, err := p.core.CoreV1().Pods(namespace).Create(ctx, forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(created.Spec.SchedulingGates) > 0, err
	})
}

// podWrites creates and deletes pods on the control plane with nsinit, with and without the component objects. Two control planes differ by
// more than the component costs.
func podWrites(ctx context.Context, planes map[bool]*plane, prefix string) (map[string]map[string]float64, error) {
	const rounds, turns = 6, 10
	p, namespace := planes[true], prefix+"-0"
	if _, _, err := p.burst(ctx, prefix, 1, 1, p.signs()); err != nil {
		return nil, err
	}
	installed, used := false, map[string][]float64{}
	arms := writeArms()
	arms[2], arms[3] = arms[3], arms[2] // without, with, with, without
	for range rounds {
		for _, a := range arms {
			var err error
			switch {
			case a.nsinit && !installed:
				err = p.installObjects(ctx)
			case installed && !a.nsinit:
				err = p.removeObjects(ctx, namespace)
			}
			if err != nil {
				return nil, err
			}
			installed = a.nsinit
			idle, err := p.idle(ctx, time.Second)
			if err != nil {
				return nil, err
			}
			for range turns {
				spent, err := p.turn(ctx, idle["kube-apiserver"], p.podCreation(ctx, namespace))
				if err != nil {
					return nil, err
				}
				used[a.name] = append(used[a.name], spent)
			}
		}
	}
	return writeFigures(used), nil
}

// turnWrites is the number of writes in a turn.
const turnWrites = 50

// turn writes many times, and returns the CPU time of kube-apiserver for each write in ms, without what it uses when it is idle, in seconds
// per second.
func (p *plane) turn(ctx context.Context, idle float64, write func() error) (float64, error) {
	began := time.Now()
	spent, err := p.spent("kube-apiserver", func() error {
		for range turnWrites {
			if err := write(); err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	})
	return 1000 * (spent - idle*time.Since(began).Seconds()) / turnWrites, err
}

// writeFigures returns the figures of each arm.
func writeFigures(used map[string][]float64) map[string]map[string]float64 {
	figures := map[string]map[string]float64{}
	for name := range used {
		slices.Sort(used[name])
		figures[name] = map[string]float64{"CPU of kube-apiserver, ms": median(used[name])} // not the mean: garbage collection is rare
	}
	return figures
}

// writes updates an object in an open namespace of each control plane. The arms take turns after a few updates, so that whatever
// disturbs the machine has the same effect on each.
func writes(updatesOf func(*plane, context.Context, string) (func() error, error)) func(context.Context, map[bool]*plane, string) (map[string]map[string]float64, error) {
	return func(ctx context.Context, planes map[bool]*plane, prefix string) (map[string]map[string]float64, error) {
		return takeTurns(ctx, planes, prefix, updatesOf)
	}
}

func takeTurns(ctx context.Context, planes map[bool]*plane, prefix string, updatesOf func(*plane, context.Context, string) (func() error, error)) (map[string]map[string]float64, error) {
	const turns, window = 120, 10 * time.Second
	idle, update := map[bool]float64{}, map[bool]func() error{}
	for nsinit, p := range planes {
		if _, _, err := p.burst(ctx, prefix, 1, 1, p.signs()); err != nil {
			return nil, err
		}
		var err error
		if update[nsinit], err = updatesOf(p, ctx, prefix+"-0"); err != nil {
			return nil, err
		}
		if _, err := p.idle(ctx, time.Second); err != nil {
			return nil, err
		}
		if idle[nsinit], err = p.spent("kube-apiserver", func() error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(window):
				return nil
			}
		}); err != nil {
			return nil, err
		}
		idle[nsinit] /= window.Seconds()
	}
	used := map[string][]float64{}
	arms := slices.DeleteFunc(writeArms(), func(a arm) bool { return planes[a.nsinit] == nil }) // for profiles
	random := rand.New(rand.NewPCG(1, 2))                                                       //nolint:gosec // no secret
	for range turns {
		random.Shuffle(len(arms), func(i, j int) { arms[i], arms[j] = arms[j], arms[i] }) // so that no arm always follows the same one
		for _, a := range arms {
			spent, err := planes[a.nsinit].turn(ctx, idle[a.nsinit], update[a.nsinit])
			if err != nil {
				return nil, err
			}
			used[a.name] = append(used[a.name], spent)
		}
	}
	return writeFigures(used), nil
}

func writeArms() []arm {
	return []arm{{name: plainArm}, {name: nsinitArm, nsinit: true}, {name: plainArm + again}, {name: nsinitArm + again, nsinit: true}}
}

// scale creates many namespaces on a new control plane, and measures what the processes use when they are idle. The first
// namespaces fill buffers, too, so that the memory for each namespace is that of the others.
func scale(ctx context.Context, p *plane, prefix string) (map[string]float64, error) {
	const first, many, window = 500, 2500, 30 * time.Second
	create := func(from, to int) (idle, memory map[string]float64, err error) {
		for n := from; n < to; n += first {
			if _, _, err := p.burst(ctx, fmt.Sprintf("%s-%d", prefix, n), first, clients, p.signs()); err != nil {
				return nil, nil, err
			}
		}
		if idle, err = p.idle(ctx, window); err != nil {
			return nil, nil, err
		}
		memory, err = p.memory()
		return idle, memory, err
	}
	_, before, err := create(0, first)
	if err != nil {
		return nil, err
	}
	idle, after, err := create(first, many)
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	for name := range after {
		each := (after[name] - before[name]) / (many - first)
		figures["memory of "+name+" for each namespace, kB"] = each / 1000
		figures["CPU of "+name+" when idle, ms per second"] = 1000 * idle[name]
	}
	return figures, nil
}
