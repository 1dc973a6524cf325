/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
	"github.com/nsinit/nsinit/test/faults/cluster"
	"github.com/nsinit/nsinit/test/faults/fault"
	"github.com/nsinit/nsinit/test/faults/history"
	"github.com/nsinit/nsinit/test/faults/proxy"
	"github.com/nsinit/nsinit/test/faults/traffic"
)

// InitializerLink is the connection from the initializers of the traffic, which run in this process, to
// the first kube-apiserver.
const InitializerLink = "initializers/kube-apiserver"

// readyBound is how long a program may take to be ready again after it was started.
const readyBound = 2 * time.Minute

// Plane is a control plane with a traffic on it.
type Plane struct {
	*cluster.Cluster
	options      cluster.Options
	initializers *proxy.Link
	address      string
	// failpoints are the addresses at which the programs take values of failpoints.
	failpoints map[string]string
}

var _ fault.Topology = (*Plane)(nil)

// Start starts a control plane, and registers the initializers of the traffic. With failpoints, the programs
// in options.BinDir are built with them.
func Start(ctx context.Context, options cluster.Options, failpoints bool) (*Plane, error) {
	p := &Plane{initializers: proxy.New(InitializerLink), failpoints: map[string]string{}}
	if failpoints {
		if err := p.enableFailpoints(&options); err != nil {
			return nil, err
		}
	}
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	p.Cluster, p.options = c, options
	err = errors.Join(p.connectInitializers(), fault.Retry(ctx, func(ctx context.Context) error { return traffic.Install(ctx, c.Admin(0)) }), c.HoldsObjects(ctx))
	if err != nil {
		return nil, errors.Join(err, p.Down(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// enableFailpoints chooses an address for each program of nsinit and for each etcd.
func (p *Plane) enableFailpoints(options *cluster.Options) error {
	programs := []string{"etcd"}
	for kind, count := range map[string]int{
		"nsinit-apiserver": options.Topology.NsinitAPIServers, "nsinit-controller-manager": options.Topology.Controllers,
		"policy-population": options.Topology.PolicyPopulations, "nsinit-etcd": options.Topology.NsinitEtcds,
	} {
		for i := range count {
			programs = append(programs, fmt.Sprintf("%s-%d", kind, i))
		}
	}
	ports, err := controlplane.FreePorts(programs)
	if err != nil {
		return err
	}
	options.Env = map[string][]string{}
	for program, port := range ports {
		p.failpoints[program] = fmt.Sprintf("127.0.0.1:%d", port)
		options.Env[program] = []string{"GOFAIL_HTTP=" + p.failpoints[program]}
	}
	return nil
}

// clockFailpoint is the failpoint that sets the clock of a program. Names of failpoints have no package.
const clockFailpoint = "clockOffset"

// SkewClock implements fault.SkewsClocks.
func (p *Plane) SkewClock(ctx context.Context, program string, offset time.Duration) error {
	if offset == 0 {
		return p.SetFailpoint(ctx, program, clockFailpoint, fault.FailpointOff)
	}
	return p.SetFailpoint(ctx, program, clockFailpoint, fmt.Sprintf("return(%q)", offset))
}

// Failpoints implements fault.HasFailpoints.
func (p *Plane) Failpoints(ctx context.Context, program string) ([]string, error) {
	list, err := p.failpoint(ctx, http.MethodGet, program, "", "")
	var names []string
	for line := range strings.Lines(list) {
		if name, _, ok := strings.Cut(line, "="); ok && name != clockFailpoint {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// SetFailpoint implements fault.HasFailpoints.
func (p *Plane) SetFailpoint(ctx context.Context, program, failpoint, terms string) error {
	_, err := p.failpoint(ctx, http.MethodPut, program, failpoint, terms)
	return err
}

// failpoint asks a program's server of failpoints, and returns its answer.
func (p *Plane) failpoint(ctx context.Context, method, program, name, terms string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+p.failpoints[program]+"/"+name, strings.NewReader(terms))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s does not take %q at the failpoint %q: %s: %s", program, terms, name, response.Status, body)
	}
	return string(body), err
}

func (p *Plane) connectInitializers() error {
	host, err := url.Parse(p.Admin(0).Host)
	if err != nil {
		return err
	}
	p.address, err = p.initializers.Forward("127.0.0.1:0", proxy.Fixed(host.Host))
	return err
}

// Down stops it.
func (p *Plane) Down(ctx context.Context) error {
	p.initializers.Close()
	return p.Cluster.Down(ctx)
}

// Servers implements fault.Topology.
func (p *Plane) Servers() []*rest.Config {
	var all []*rest.Config
	for i := range p.options.Topology.KubeAPIServers {
		all = append(all, p.Admin(i))
	}
	return all
}

// Initializers implements fault.Topology.
func (p *Plane) Initializers() *rest.Config {
	config := p.Admin(0)
	config.Host = "https://" + p.address
	return config
}

// Etcd implements fault.Topology.
func (p *Plane) Etcd(store history.Store) (*clientv3.Client, error) {
	if store == history.Kube {
		return p.KubeEtcd()
	}
	return p.NsinitEtcd()
}

// Run implements fault.Topology.
func (p *Plane) Run(ctx context.Context, program string) error { return p.StartProgram(ctx, program) }

// Links implements fault.Topology.
func (p *Plane) Links() []string { return append(p.Cluster.Links(), InitializerLink) }

// Link implements fault.Topology.
func (p *Plane) Link(name string) fault.Link {
	if name == InitializerLink {
		return p.initializers
	}
	if link := p.Cluster.Link(name); link != nil {
		return link
	}
	return nil
}

// Can reports whether it has a capability.
func (p *Plane) Can(capability fault.Capability) bool {
	switch capability {
	case fault.Volumes:
		return p.options.Volume
	case fault.SkewClock, fault.Failpoints:
		return len(p.failpoints) > 0
	case fault.Versions:
		return p.options.EarlierDir != ""
	}
	return true
}

// ReplaceStorage implements fault.ReplacesStorage.
func (p *Plane) ReplaceStorage(snapshot string) error {
	for _, program := range p.Programs() {
		if fault.Kind(program) != "nsinit-etcd" {
			continue
		}
		if err := p.ReplaceEtcd(program, snapshot); err != nil {
			return err
		}
	}
	return nil
}

// Heal starts and resumes every program, and heals every link, so that a round begins with a control
// plane that works.
func (p *Plane) Heal(ctx context.Context) error {
	var errs []error
	for _, link := range p.Links() {
		errs = append(errs, p.Link(link).Heal())
	}
	for _, program := range p.Programs() {
		if p.Running(program) {
			errs = append(errs, p.Resume(ctx, program))
		} else {
			errs = append(errs, p.Run(ctx, program))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	if err := p.WaitReady(ctx, p.Programs()...); err != nil {
		errs = append(errs, fmt.Errorf("programs are not ready: %w", err))
	}
	return errors.Join(errs...)
}

// Logs returns the last lines of every program's log, for a round that could not be judged.
func (p *Plane) Logs(lines int) string {
	var text strings.Builder
	for _, program := range p.Programs() {
		data, err := os.ReadFile(p.LogFile(program))
		if err != nil {
			continue
		}
		all := strings.Split(strings.TrimSpace(string(data)), "\n")
		fmt.Fprintf(&text, "==> %s\n%s\n", program, strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return text.String()
}
