/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nsinit/nsinit/hack/dev/controlplane"
	"github.com/nsinit/nsinit/test/faults/proxy"
)

// The programs. Those of which there can be several have names such as nsinit-apiserver-0.
const (
	etcd                  = "etcd"
	kubeAPIServer         = "kube-apiserver"
	kubeControllerManager = "kube-controller-manager"
	kubeScheduler         = controlplane.Scheduler
	nsinitEtcd            = "nsinit-etcd"
	nsinitAPIServer       = "nsinit-apiserver"
	controllerManager     = "nsinit-controller-manager"
	policyPopulation      = "policy-population"

	aggregator = "aggregator"
)

// overrides are the resources that each further kube-apiserver reads through separate links.
func overrides() map[string][]string {
	const policies = "admissionregistration.k8s.io/"
	return map[string][]string{
		"namespaces": {"/namespaces"},
		"configmaps": {"/configmaps"},
		"policies": {policies + "validatingadmissionpolicies", policies + "validatingadmissionpolicybindings",
			policies + "mutatingadmissionpolicies", policies + "mutatingadmissionpolicybindings"},
	}
}

func replicaName(program string, i int) string { return fmt.Sprintf("%s-%d", program, i) }

// define makes the links and the processes.
func (c *Cluster) define() error {
	t := c.options.Topology
	// The ports that the code of the development control plane uses.
	c.ports[replicaName(kubeAPIServer, 0)] = c.base.Ports[kubeAPIServer]
	c.ports[aggregator] = c.base.Ports[nsinitAPIServer]
	c.add(etcd, etcd, c.base.Process(etcd).Args)
	steps := []struct {
		program string
		count   int
		args    func(name string, i int) ([]string, error)
	}{
		{kubeAPIServer, t.KubeAPIServers, c.kubeAPIServerArgs},
		{nsinitEtcd, t.nsinitEtcds(), c.nsinitEtcdArgs},
		{nsinitAPIServer, t.NsinitAPIServers, c.nsinitAPIServerArgs},
		{controllerManager, t.Controllers, c.controllerManagerArgs},
		{policyPopulation, t.PolicyPopulations, c.policyPopulationArgs},
	}
	for _, step := range steps {
		for i := range step.count {
			name := replicaName(step.program, i)
			args, err := step.args(name, i)
			if err != nil {
				return err
			}
			binary := step.program
			switch {
			case step.program == nsinitEtcd && t.NsinitEtcds == 0:
				binary = nsinitAPIServer
			case step.program == nsinitEtcd:
				binary = etcd
			}
			c.add(name, binary, args)
		}
		if step.program == kubeAPIServer {
			kubeconfig, err := c.kubeconfig(kubeControllerManager, kubeControllerManager, 0)
			if err != nil {
				return err
			}
			c.add(kubeControllerManager, kubeControllerManager, with(c.base.Process(kubeControllerManager).Args, map[string]string{
				"kubeconfig": kubeconfig, "authentication-kubeconfig": kubeconfig, "authorization-kubeconfig": kubeconfig,
				"controllers": "*,-node-lifecycle-controller"})) // no kubelet reports that the nodes are ready
			if err := c.addScheduler(); err != nil {
				return err
			}
		}
	}
	return c.balance()
}

// add adds a program.
func (c *Cluster) add(name, binary string, args []string) {
	c.names = append(c.names, name)
	c.processes[name] = &controlplane.Process{
		Name: name, Program: c.file(binary, c.options.BinDir), Args: args, Env: c.options.Env[name], Bound: true,
		StateDir: c.Dir, Dev: filepath.Join(c.base.BinDir, "dev"),
	}
}

// file returns the path of a program: in a directory, if that has it.
func (c *Cluster) file(binary, dir string) string {
	if own := filepath.Join(dir, binary); dir != "" && exists(own) {
		return own
	}
	return filepath.Join(c.base.BinDir, binary)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// port returns the port of a program or link. It chooses one the first time.
func (c *Cluster) port(name string) (int, error) {
	for c.ports[name] == 0 {
		free, err := controlplane.FreePorts([]string{name})
		if err != nil {
			return 0, err
		}
		if !slices.Contains(slices.Collect(maps.Values(c.ports)), free[name]) {
			c.ports[name] = free[name]
		}
	}
	return c.ports[name], nil
}

func (c *Cluster) address(name string) string { return fmt.Sprintf("127.0.0.1:%d", c.ports[name]) }

func (c *Cluster) url(name string) string { return "https://" + c.address(name) }

// forward makes a link listen on one more port, and returns its URL. What it passes on goes to a
// program.
func (c *Cluster) forward(link, program string) (string, error) {
	if _, err := c.port(program); err != nil {
		return "", err
	}
	return c.forwardTo(link, link+" to "+program, proxy.Fixed(c.address(program)))
}

func (c *Cluster) forwardTo(link, listener string, target func() string) (string, error) {
	if _, err := c.port(listener); err != nil {
		return "", err
	}
	if c.links[link] == nil {
		c.links[link] = proxy.New(link)
	}
	address, err := c.links[link].Forward(c.address(listener), target)
	return "https://" + address, err
}

// kubeconfig writes a kubeconfig by which a replica reaches its kube-apiserver through a link.
func (c *Cluster) kubeconfig(name, program string, i int) (string, error) {
	server := replicaName(kubeAPIServer, i%c.options.Topology.KubeAPIServers)
	link := name + "/" + kubeAPIServer
	if _, err := c.forward(link, server); err != nil {
		return "", err
	}
	err := c.base.WriteKubeconfig(name, program, c.ports[link+" to "+server])
	return filepath.Join(c.Dir, name+".kubeconfig"), err
}

// with returns arguments in which some flags have other values. A flag without a value is left out.
func with(args []string, values map[string]string) []string {
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		flag, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		_, replaced := values[flag]
		return replaced
	})
	for _, flag := range slices.Sorted(maps.Keys(values)) {
		if value := values[flag]; value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	return args
}

func (c *Cluster) kubeAPIServerArgs(name string, i int) ([]string, error) {
	port, err := c.port(name)
	if err != nil {
		return nil, err
	}
	servers, err := c.forward(name+"/etcd", etcd)
	if err != nil {
		return nil, err
	}
	values := map[string]string{"secure-port": fmt.Sprint(port), "etcd-servers": servers, "audit-log-path": filepath.Join(c.Dir, name+".audit.log")}
	if i > 0 {
		var all []string
		for link, resources := range overrides() {
			server, err := c.forward(name+"/etcd:"+link, etcd)
			if err != nil {
				return nil, err
			}
			for _, resource := range resources {
				all = append(all, resource+"#"+server)
			}
		}
		values["etcd-servers-overrides"] = strings.Join(all, ",")
	}
	return with(c.base.Process(kubeAPIServer).Args, values), nil
}

// nsinitEtcdArgs are those of the embedded etcd, or those of the etcd of Kubernetes with the name, addresses and directory of a member.
func (c *Cluster) nsinitEtcdArgs(name string, _ int) ([]string, error) {
	if c.options.Topology.NsinitEtcds == 0 {
		return with(c.base.Process(nsinitEtcd).Args, map[string]string{"embedded-etcd-dir": c.volume()}), nil
	}
	var peers []string
	for i := range c.options.Topology.NsinitEtcds {
		member := replicaName(nsinitEtcd, i)
		peer := member + "/peers to " + member + "-peer"
		if c.ports[peer] == 0 {
			if _, err := c.forward(member+"/peers", member+"-peer"); err != nil {
				return nil, err
			}
		}
		peers = append(peers, member+"="+c.url(peer))
	}
	if _, err := c.port(name); err != nil {
		return nil, err
	}
	return with(c.base.Process(etcd).Args, map[string]string{
		"name": name, "data-dir": filepath.Join(c.Dir, name),
		"listen-client-urls": c.url(name), "listen-client-http-urls": "", "advertise-client-urls": c.url(name),
		"listen-peer-urls": c.url(name + "-peer"), "initial-advertise-peer-urls": c.url(name + "/peers to " + name + "-peer"),
		"initial-cluster": strings.Join(peers, ","),
	}), nil
}

func (c *Cluster) nsinitAPIServerArgs(name string, i int) ([]string, error) {
	port, err := c.port(name)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.kubeconfig(name, nsinitAPIServer, i)
	if err != nil {
		return nil, err
	}
	pki := c.base.PKI()
	values := map[string]string{"secure-port": fmt.Sprint(port), "kubeconfig": kubeconfig,
		"tls-cert-file": pki.Cert(name), "tls-private-key-file": pki.Key(name), "embedded-etcd-dir": c.volume()}
	if c.options.Topology.NsinitEtcds > 0 {
		var servers []string
		for member := range c.options.Topology.NsinitEtcds {
			server, err := c.forward(name+"/etcd", replicaName(nsinitEtcd, member))
			if err != nil {
				return nil, err
			}
			servers = append(servers, server)
		}
		maps.Copy(values, map[string]string{"embedded-etcd-dir": "", "etcd-servers": strings.Join(servers, ","),
			"etcd-cafile": pki.Cert("etcd-ca"), "etcd-certfile": pki.Cert("etcd"), "etcd-keyfile": pki.Key("etcd")})
	}
	if c.options.Topology.NsinitAPIServers > 1 { // as in overlays/ha, with a shorter delay
		maps.Copy(values, map[string]string{"disable-http2-serving": "true", "shutdown-delay-duration": "5s", "shutdown-send-retry-after": "true"})
	}
	return with(c.base.Process(nsinitAPIServer).Args, values), nil
}

func (c *Cluster) controllerManagerArgs(name string, i int) ([]string, error) {
	port, err := c.port(name)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.kubeconfig(name, controllerManager, i)
	return with(c.base.Process(controllerManager).Args, map[string]string{"secure-port": fmt.Sprint(port), "kubeconfig": kubeconfig}), err
}

func (c *Cluster) policyPopulationArgs(name string, i int) ([]string, error) {
	if _, err := c.port(name); err != nil {
		return nil, err
	}
	kubeconfig, err := c.kubeconfig(name, policyPopulation, i)
	return with(c.base.Process(policyPopulation).Args, map[string]string{
		"kubeconfig": kubeconfig, "health-bind-address": c.address(name), "leader-elect": fmt.Sprint(c.options.Topology.PolicyPopulations > 1)}), err
}
