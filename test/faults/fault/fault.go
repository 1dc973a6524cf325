/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package fault

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
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
	// Ready returns why a program is not ready.
	Ready(ctx context.Context, program string) error
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
	Heal() error
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
	// Name is the key of the fault in the state of a campaign.
	Name string
	// Description is a clause for the report.
	Description string
	// Programs are the kinds of programs, and Links the links, that it needs.
	Programs []string
	Links    []*regexp.Regexp
	// Capability is what else the topology has to have, if anything.
	Capability Capability
	// NameReuse means that the fault exposes what docs/security.md says of names that are used again:
	// without the component strict-name-reuse, tenants do not use names again meanwhile.
	NameReuse bool
	// Hold is how long the fault lasts, and Rest the time to the next one.
	Hold, Rest time.Duration
	// Inject returns what heals the fault. With an error, which counts for no injection, it returns what heals the part that was
	// injected, or nil.
	Inject func(ctx context.Context, e *Env) (heal func(ctx context.Context) error, err error)
}

// Capability is something that not every topology has.
type Capability string

const (
	// Storage: see ReplacesStorage.
	Storage Capability = "storage"
	// Volumes: see HasVolume.
	Volumes Capability = "volumes"
	// Certificates: see HasCertificates.
	Certificates Capability = "certificates"
	// SkewClock: see SkewsClocks. It takes programs that are built with failpoints.
	SkewClock Capability = "skewed clocks"
	// Failpoints: see HasFailpoints.
	Failpoints Capability = "failpoints"
	// Versions: see HasVersions.
	Versions Capability = "versions"
)

// Can reports whether a topology has what the fault needs.
func (f *Fault) Can(topology Topology) bool {
	for _, kind := range f.Programs {
		if len(replicas(topology, kind)) == 0 {
			return false
		}
	}
	for _, link := range f.Links {
		if !slices.ContainsFunc(topology.Links(), link.MatchString) {
			return false
		}
	}
	if f.Capability == "" {
		return true
	}
	capable, ok := topology.(interface {
		Can(capability Capability) bool
	})
	return ok && capable.Can(f.Capability)
}

// Mixed returns a fault that is one of those that a topology can have after the other.
func Mixed(faults []Fault, topology Topology) Fault {
	faults = slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return !f.Can(topology) })
	next := 0
	return Fault{Name: "several faults", Inject: func(ctx context.Context, e *Env) (healer, error) {
		f := faults[next%len(faults)]
		next++
		heal, err := f.Inject(ctx, e)
		if err != nil {
			return heal, fmt.Errorf("%s: %w", f.Name, err)
		}
		return func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-time.After(f.Hold):
			}
			if err := heal(ctx); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			return nil
		}, nil
	}}
}

// Title is the description of the fault in the report.
func (f *Fault) Title() string {
	title := cmp.Or(f.Description, f.Name)
	if f.NameReuse {
		title += " \\*"
	}
	return title
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
	return slices.Concat(processFaults(), versionFaults(), linkFaults(), storageFaults(), hostFaults(), failpointFaults(), admissionFaults(), objectFaults())
}
