/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/pkg/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/faults/history"
)

// Topology is the control plane that faults are injected into.
type Topology interface {
	// Servers are administrators' configurations, one for each kube-apiserver.
	Servers() []*rest.Config
	// Initializers is how initializers reach kube-apiserver.
	Initializers() *rest.Config
	// Etcd returns a client of a store that no fault of the network concerns.
	Etcd(store history.Store) (*clientv3.Client, error)
	// Programs are the names of the programs that run.
	Programs() []string
	// Kill ends a program with SIGKILL; Stop asks it to end; neither is started again before Run.
	Kill(ctx context.Context, program string) error
	Stop(ctx context.Context, program string) error
	Run(ctx context.Context, program string) error
	// Pause and Resume send SIGSTOP and SIGCONT.
	Pause(ctx context.Context, program string) error
	Resume(ctx context.Context, program string) error
	// Links are the names of the connections that Link changes.
	Links() []string
	Link(name string) Link
}

// Link is a connection between two programs.
type Link interface {
	// Delay holds back what is sent; Drop swallows it without closing connections; Cut closes
	// connections and refuses new ones; Heal ends all of these.
	Delay(time.Duration)
	Drop()
	Cut()
	Heal()
}

// Env is what a fault works with.
type Env struct {
	Topology
	// Core and Nsinit are clients of an administrator. Their requests are not recorded.
	Core     kubernetes.Interface
	Nsinit   versioned.Interface
	Recorder *history.Recorder
	Random   *rand.Rand
	// Prefix is that of the namespaces of the traffic.
	Prefix string
}

// NewEnv returns the environment of a round.
func NewEnv(topology Topology, recorder *history.Recorder, prefix string, seed uint64) (*Env, error) {
	config := rest.CopyConfig(topology.Servers()[0])
	config.QPS, config.Timeout = -1, adminTimeout
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	nsinit, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Env{
		Topology: topology, Core: core, Nsinit: nsinit, Recorder: recorder, Prefix: prefix,
		Random: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // not a secret
	}, nil
}

// adminTimeout bounds the requests of a fault itself.
const adminTimeout = 15 * time.Second

// Fault is one line of the table.
type Fault struct {
	Name string
	// Programs and Links are what it needs.
	Programs, Links []string
	// Capability names what else the topology has to have, if anything: see Can.
	Capability string
	// Hold is how long the fault lasts, and Rest the time to the next one.
	Hold, Rest time.Duration
	// Inject returns what heals the fault. Where it returns an error, nothing was injected.
	Inject func(ctx context.Context, e *Env) (heal func(ctx context.Context) error, err error)
}

// LoseStorage is the capability to replace the storage of nsinit by an empty one.
const LoseStorage = "lose storage"

// Can says whether a topology has what the fault needs.
func (f *Fault) Can(topology Topology) bool {
	for _, program := range f.Programs {
		if !slices.Contains(topology.Programs(), program) {
			return false
		}
	}
	for _, link := range f.Links {
		if !slices.Contains(topology.Links(), link) {
			return false
		}
	}
	if f.Capability == "" {
		return true
	}
	capable, ok := topology.(interface{ Can(capability string) bool })
	return ok && capable.Can(f.Capability)
}

// Find returns a fault of the table by its name.
func Find(name string) (*Fault, error) {
	all := All()
	i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no fault %q", name)
	}
	return &all[i], nil
}

// All returns the table.
func All() []Fault {
	return slices.Concat(processFaults(), linkFaults(), storageFaults(), admissionFaults(), objectFaults())
}
