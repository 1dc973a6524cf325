/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// portNames are the listeners of a control plane, each named after its program.
func portNames() []string {
	return []string{"etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "nsinit-apiserver", "nsinit-controller-manager", "logstore"}
}

func (c *Cluster) portsFile() string { return filepath.Join(c.Dir, "ports.json") }

// loadPorts reads the ports that were chosen before, or chooses some.
func (c *Cluster) loadPorts() error {
	data, err := os.ReadFile(c.portsFile())
	if err == nil {
		if err := json.Unmarshal(data, &c.Ports); err != nil {
			return fmt.Errorf("%s is damaged, remove it: %w", c.portsFile(), err)
		}
		return c.addPorts()
	}
	if !os.IsNotExist(err) {
		return err
	}
	if c.Ports, err = portsFromEnvironment(); err != nil {
		return err
	}
	if c.Ports == nil {
		if c.Ports, err = FreePorts(portNames()); err != nil {
			return err
		}
	}
	return c.savePorts()
}

// addPorts chooses ports for programs that there were not when the others were chosen.
func (c *Cluster) addPorts() error {
	missing := slices.DeleteFunc(portNames(), func(name string) bool { return c.Ports[name] != 0 })
	added, err := FreePorts(missing)
	if err != nil {
		return err
	}
	maps.Copy(c.Ports, added)
	return nil
}

func (c *Cluster) savePorts() error {
	data, err := json.MarshalIndent(c.Ports, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.portsFile(), append(data, '\n'), 0o600)
}

// claimPorts makes sure, before anything starts, that the ports are the ones that are
// wanted and that nobody else has taken one since. While programs run, ports stay: what
// the others were told of them cannot change.
func (c *Cluster) claimPorts() error {
	running := slices.DeleteFunc(ProgramNames(), func(name string) bool { return !c.Process(name).Active() })
	wanted, err := portsFromEnvironment()
	if err != nil {
		return err
	}
	before := c.Ports["kube-apiserver"]
	if wanted != nil && !maps.Equal(wanted, c.Ports) {
		if len(running) > 0 {
			return fmt.Errorf("NSINIT_DEV_PORT asks for other ports than the control plane in %s has: stop it first (%s)", c.Dir, c.downCommand())
		}
		c.Ports = wanted
	}
	for _, name := range portNames() {
		if slices.Contains(running, strings.TrimSuffix(name, "-peer")) || isFree(c.Ports[name]) {
			continue
		}
		if wanted != nil {
			return fmt.Errorf("port %d, for %s, is taken: set NSINIT_DEV_PORT to the first of %d free ports", c.Ports[name], name, len(portNames()))
		}
		if len(running) > 0 {
			return fmt.Errorf("port %d of %s is taken by another program: stop the control plane (%s) and start it again, on other ports",
				c.Ports[name], name, c.downCommand())
		}
		c.say("port %d of %s is taken, choosing others", c.Ports[name], name)
		if c.Ports, err = FreePorts(portNames()); err != nil {
			return err
		}
		break
	}
	if err := c.savePorts(); err != nil {
		return err
	}
	return c.moveKubeconfigs(before, c.Ports["kube-apiserver"])
}

// moveKubeconfigs points the kubeconfigs of users, which only their makers could make
// again, to another port of kube-apiserver.
func (c *Cluster) moveKubeconfigs(from, to int) error {
	if from == to {
		return nil
	}
	files, err := filepath.Glob(c.path("user-*.kubeconfig"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		moved := strings.ReplaceAll(string(data), serverURL(from), serverURL(to))
		if err := os.WriteFile(file, []byte(moved), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// serverURL is how kubeconfigs name the server on a port.
func serverURL(port int) string {
	return fmt.Sprintf("server: %q", fmt.Sprintf("https://127.0.0.1:%d", port))
}

// portsFromEnvironment returns a row of ports that begins with NSINIT_DEV_PORT, or nil.
func portsFromEnvironment() (map[string]int, error) {
	text := os.Getenv("NSINIT_DEV_PORT")
	if text == "" {
		return nil, nil
	}
	first, err := strconv.Atoi(text)
	if err != nil || first < 1 || first+len(portNames()) > 1<<16 {
		return nil, fmt.Errorf("NSINIT_DEV_PORT is %q: set it to a port number, or leave it out to use free ports", text)
	}
	ports := map[string]int{}
	for i, name := range portNames() {
		ports[name] = first + i
	}
	return ports, nil
}

// firstPort is the lowest port that is chosen.
const firstPort = 20000

// FreePorts chooses a free port for each name, below those that the kernel gives to
// outgoing connections: a program that was killed finds its port free again.
func FreePorts(names []string) (map[string]int, error) {
	limit := ephemeralStart()
	ports := map[string]int{}
	for _, name := range names {
		for attempt := 0; ports[name] == 0; attempt++ {
			if attempt == 1000 {
				return nil, errors.New("no free port was found: set NSINIT_DEV_PORT to the first of a row of free ports")
			}
			port := firstPort + rand.IntN(limit-firstPort)
			if !slices.Contains(slices.Collect(maps.Values(ports)), port) && isFree(port) {
				ports[name] = port
			}
		}
	}
	return ports, nil
}

// ephemeralStart returns the first port of outgoing connections, or Linux' default where
// that leaves no room.
func ephemeralStart() int {
	const standard, room = 32768, 1000
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return standard
	}
	fields := strings.Fields(string(data))
	if len(fields) == 0 {
		return standard
	}
	start, err := strconv.Atoi(fields[0])
	if err != nil || start < firstPort+room {
		return standard
	}
	return start
}

// isFree says whether a program could listen on a port of loopback now.
func isFree(port int) bool {
	if port == 0 {
		return false
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
