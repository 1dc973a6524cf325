/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kinds of programs, each of which may have several replicas, such as nsinit-apiserver-1.
const (
	kubeEtcd   = "etcd"
	apiserver  = "kube-apiserver"
	kubeCM     = "kube-controller-manager"
	nsinitEtcd = "nsinit-etcd"
	nsinitAPI  = "nsinit-apiserver"
	nsinitCM   = "nsinit-controller-manager"
	population = "policy-population"
)

// subject returns one program of a kind, as descriptions name it.
func subject(kind string) string {
	switch kind {
	case kubeEtcd:
		return "the etcd of Kubernetes"
	case apiserver:
		return "a kube-apiserver"
	case kubeCM:
		return kind
	case nsinitEtcd:
		return "a member of nsinit's etcd"
	}
	return "a replica of " + kind
}

// stopGrace is how long a program may take to end before it is killed.
const stopGrace = 3 * time.Second

// leaseBound is so long that a leader that is paused loses its lease, and the next one takes it.
const leaseBound = 5 * time.Second

// Kind returns the kind of a program.
func Kind(program string) string { return regexp.MustCompile(`-\d+$`).ReplaceAllString(program, "") }

// replicas returns the programs of a kind.
func replicas(t Topology, kind string) []string {
	return slices.DeleteFunc(slices.Clone(t.Programs()), func(program string) bool { return Kind(program) != kind })
}

// anyOf chooses a program of a kind.
func (e *Env) anyOf(kind string) ([]string, error) {
	all := replicas(e, kind)
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no %s", kind)
	}
	return []string{all[e.Random.IntN(len(all))]}, nil
}

// allOf chooses every program of some kinds.
func allOf(kinds ...string) func(context.Context, *Env) ([]string, error) {
	return func(_ context.Context, e *Env) ([]string, error) {
		var all []string
		for _, kind := range kinds {
			all = append(all, replicas(e, kind)...)
		}
		return all, nil
	}
}

func oneOf(kind string) func(context.Context, *Env) ([]string, error) {
	return func(_ context.Context, e *Env) ([]string, error) { return e.anyOf(kind) }
}

// processFaults kill, pause and restart programs.
func processFaults() []Fault {
	var all []Fault
	for _, kind := range []string{kubeEtcd, apiserver, kubeCM, nsinitEtcd, nsinitAPI, nsinitCM, population} {
		all = append(all,
			Fault{Name: "kill -9 " + kind, Description: subject(kind) + " is killed (SIGKILL)", Programs: []string{kind}, Hold: 300 * time.Millisecond, Rest: time.Second, Inject: down(oneOf(kind))},
			Fault{Name: "SIGSTOP " + kind, Description: subject(kind) + " is paused (SIGSTOP)", Programs: []string{kind}, Hold: time.Second, Rest: 300 * time.Millisecond,
				NameReuse: kind == apiserver, Inject: pause(oneOf(kind))},
		)
	}
	return append(all,
		Fault{Name: "restart of kube-apiserver", Description: subject(apiserver) + " is restarted", Programs: []string{apiserver}, Rest: time.Second, Inject: restart(oneOf(apiserver))},
		Fault{Name: "every nsinit-apiserver and nsinit-controller-manager down", Description: "every replica of nsinit-apiserver and of nsinit-controller-manager is killed",
			Programs: []string{nsinitAPI, nsinitCM}, Hold: time.Second, Rest: time.Second, Inject: down(allOf(nsinitAPI, nsinitCM))},
		Fault{Name: "leader paused past its lease", Description: "the leader of nsinit-controller-manager is paused until it has lost its lease", Programs: []string{nsinitCM},
			Hold: leaseBound, Rest: 200 * time.Millisecond, Inject: pauseLeader},
		Fault{Name: "leader of nsinit's etcd killed", Description: "the leader of nsinit's etcd is killed", Programs: []string{nsinitEtcd},
			Hold: 300 * time.Millisecond, Rest: time.Second, Inject: down(etcdLeader)},
		Fault{Name: "failover of kube-controller-manager", Description: "kube-controller-manager is killed while a client creates and deletes three namespaces, and the next one starts when a lease would have expired",
			Programs: []string{kubeCM}, Hold: leaseBound, Rest: time.Second, Inject: failOver},
		Fault{Name: "rolling restart of nsinit's etcd", Description: "the members of nsinit's etcd are restarted one after the other", Programs: []string{nsinitEtcd},
			Rest: 300 * time.Millisecond, Inject: roll},
	)
}

type (
	healer   = func(context.Context) error
	selector = func(context.Context, *Env) ([]string, error)
)

// down kills programs, and starts them to heal.
func down(programs selector) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		chosen, err := programs(ctx, e)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return e.runAll(ctx, chosen) }, e.killAll(ctx, chosen)
	}
}

func (e *Env) killAll(ctx context.Context, programs []string) error {
	var errs []error
	for _, program := range programs {
		errs = append(errs, e.Kill(ctx, program))
	}
	return errors.Join(errs...)
}

func (e *Env) runAll(ctx context.Context, programs []string) error {
	var errs []error
	for _, program := range programs {
		errs = append(errs, e.Run(ctx, program))
	}
	return errors.Join(errs...)
}

func pause(programs selector) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		chosen, err := programs(ctx, e)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return e.Resume(ctx, chosen[0]) }, e.Pause(ctx, chosen[0])
	}
}

func restart(programs selector) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		chosen, err := programs(ctx, e)
		if err != nil {
			return nil, err
		}
		stopping, cancel := context.WithTimeout(ctx, stopGrace)
		defer cancel()
		if e.Stop(stopping, chosen[0]) != nil { // kube-apiserver waits for its watches
			err = e.Kill(ctx, chosen[0])
		}
		return func(ctx context.Context) error { return e.runAll(ctx, chosen) }, err
	}
}

// roll restarts each member of nsinit's etcd when the former is ready again.
func roll(ctx context.Context, e *Env) (healer, error) {
	for _, member := range replicas(e, nsinitEtcd) {
		start, err := restart(func(context.Context, *Env) ([]string, error) { return []string{member}, nil })(ctx, e)
		if err := errors.Join(err, start(ctx), e.awaitReady(ctx, member)); err != nil {
			return start, err
		}
	}
	return nothing, nil
}

// awaitReady waits until a program is ready, for a minute.
func (e *Env) awaitReady(ctx context.Context, program string) error {
	return Retry(ctx, func(ctx context.Context) error { return e.Ready(ctx, program) })
}

// failOver creates namespaces, kills kube-controller-manager, and deletes the namespaces. The next kube-controller-manager finds all of them.
func failOver(ctx context.Context, e *Env) (healer, error) {
	var names []string
	for range 3 {
		created, err := e.createNamespace(ctx, "burst")
		if err != nil {
			return nil, err
		}
		names = append(names, created)
	}
	heal, err := down(oneOf(kubeCM))(ctx, e)
	for _, name := range names {
		err = errors.Join(err, ignoreNotFound(e.Core.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})))
	}
	return heal, err
}

// nothing heals a fault that has ended.
func nothing(context.Context) error { return nil }

// versionFaults replace a program by an earlier version for a while, so that replicas of two versions act on the same objects.
func versionFaults() []Fault {
	var all []Fault
	for _, kind := range []string{nsinitAPI, nsinitCM, population} {
		all = append(all, Fault{Name: "earlier version of " + kind, Description: subject(kind) + " is replaced by one of an earlier version, and then by one of the tested version",
			Programs: []string{kind}, Capability: Versions, Hold: time.Second, Rest: 300 * time.Millisecond, Inject: downgrade(kind)})
	}
	return all
}

// downgrade replaces a program, and returns when the earlier version is ready.
func downgrade(kind string) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		topology, ok := e.Topology.(HasVersions)
		if !ok {
			return nil, errors.New("there is one version")
		}
		chosen, err := e.anyOf(kind)
		if err != nil {
			return nil, err
		}
		use := func(ctx context.Context, earlier bool) error {
			if err := e.Kill(ctx, chosen[0]); err != nil {
				return err
			}
			topology.UseEarlier(chosen[0], earlier)
			return errors.Join(e.Run(ctx, chosen[0]), e.awaitReady(ctx, chosen[0]))
		}
		return func(ctx context.Context) error { return use(ctx, false) }, use(ctx, true)
	}
}

// apiserverToEtcd is the kind of the links by which a kube-apiserver learns of namespaces.
const apiserverToEtcd = "kube-apiserver to etcd"

// linkKind is a kind of connection between programs.
type linkKind struct {
	// ends are the programs, as descriptions name them.
	ends string
	// links are the links that the connection consists of.
	links *regexp.Regexp
}

// linkKinds are the connections between programs.
func linkKinds() map[string]linkKind {
	return map[string]linkKind{
		apiserverToEtcd:                      {"a kube-apiserver to the etcd of Kubernetes", regexp.MustCompile(`^kube-apiserver-\d+/etcd$`)},
		"aggregator to nsinit-apiserver":     {"kube-apiserver to nsinit-apiserver", regexp.MustCompile(`^aggregator(/nsinit-apiserver-\d+)?$`)},
		"controller to kube-apiserver":       {"nsinit-controller-manager to kube-apiserver", regexp.MustCompile(`^nsinit-controller-manager-\d+/kube-apiserver$`)},
		"initializer to kube-apiserver":      {"initializers to kube-apiserver", regexp.MustCompile(`^(initializers|policy-population-\d+)/kube-apiserver$`)},
		"nsinit-apiserver to its etcd":       {"nsinit-apiserver to its etcd", regexp.MustCompile(`^nsinit-apiserver-\d+/etcd$`)},
		"nsinit-apiserver to kube-apiserver": {"nsinit-apiserver to kube-apiserver", regexp.MustCompile(`^nsinit-apiserver-\d+/kube-apiserver$`)},
		"member to member of nsinit's etcd":  {"the other members to one member of nsinit's etcd", regexp.MustCompile(`^nsinit-etcd-\d+/peers$`)},
	}
}

// linkFaults delay, drop and cut connections, and make the second kube-apiserver see the past.
func linkFaults() []Fault {
	var all []Fault
	for _, kind := range slices.Sorted(maps.Keys(linkKinds())) {
		links := linkKinds()[kind].links
		for _, how := range []struct {
			name, description string
			do                func(Link)
		}{
			{"delayed", "deliver data 500 ms late", func(l Link) { l.Delay(500 * time.Millisecond) }},
			{"dropped", "deliver no data until the fault ends", Link.Drop},
			{"cut", "are closed until the fault ends", Link.Cut},
		} {
			all = append(all, Fault{Name: kind + " " + how.name, Description: "connections from " + linkKinds()[kind].ends + " " + how.description,
				Links: []*regexp.Regexp{links}, Hold: time.Second, Rest: 300 * time.Millisecond, NameReuse: kind == apiserverToEtcd,
				Inject: func(_ context.Context, e *Env) (healer, error) { return e.change(links, how.do) }})
		}
	}
	for _, resource := range []struct{ name, description string }{{"namespaces", "namespaces"}, {"policies", "admission policies"}, {"configmaps", "ConfigMaps"}} {
		what := resource.name
		links := regexp.MustCompile(`^kube-apiserver-[1-9]\d*/etcd:` + what + `$`)
		all = append(all, Fault{Name: "second kube-apiserver with stale " + what, Description: "a second kube-apiserver receives changes of " + resource.description + " 2 s late",
			Links: []*regexp.Regexp{links}, Hold: 2500 * time.Millisecond, Rest: 500 * time.Millisecond,
			NameReuse: what == "namespaces",
			Inject: func(_ context.Context, e *Env) (healer, error) {
				return e.change(links, func(l Link) { l.Delay(2 * time.Second) })
			}})
	}
	return all
}

// change does something to one of some links.
func (e *Env) change(links *regexp.Regexp, do func(Link)) (healer, error) {
	names := slices.DeleteFunc(slices.Clone(e.Links()), func(name string) bool { return !links.MatchString(name) })
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no link %s", links)
	}
	link := e.Link(names[e.Random.IntN(len(names))])
	do(link)
	return func(context.Context) error { return link.Heal() }, nil
}
