/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// portNames are the listeners of a control plane, each named after its program.
func portNames() []string {
	return []string{"etcd", "etcd-http", "etcd-peer", "kube-apiserver", "kube-controller-manager", "nsinit-apiserver", "nsinit-controller-manager", "logstore"}
}

func (c *Cluster) portsFile() string { return filepath.Join(c.Dir, "ports.json") }

// loadPorts reads the ports that were chosen before, and chooses those that are missing.
func (c *Cluster) loadPorts() error {
	c.Ports = map[string]int{}
	data, err := os.ReadFile(c.portsFile())
	if err == nil {
		err = json.Unmarshal(data, &c.Ports)
	}
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("cannot read %s, remove it: %w", c.portsFile(), err)
	}
	added, err := FreePorts(slices.DeleteFunc(portNames(), func(name string) bool { return c.Ports[name] != 0 }))
	if err != nil || len(added) == 0 {
		return err
	}
	maps.Copy(c.Ports, added)
	return c.savePorts()
}

func (c *Cluster) savePorts() error {
	data, err := json.MarshalIndent(c.Ports, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.portsFile(), append(data, '\n'), 0o600)
}

// claimPorts chooses other ports if another program took one. While programs of the control plane
// run, the ports cannot change, because the others have them in their arguments.
func (c *Cluster) claimPorts() error {
	running := slices.DeleteFunc(ProgramNames(), func(name string) bool { return !c.Process(name).Active() })
	taken := slices.IndexFunc(portNames(), func(name string) bool {
		program := strings.TrimSuffix(strings.TrimSuffix(name, "-peer"), "-http")
		return !slices.Contains(running, program) && !isFree(c.Ports[name])
	})
	if taken < 0 {
		return nil
	}
	name := portNames()[taken]
	if len(running) > 0 {
		return fmt.Errorf("port %d of %s is taken by another program: stop the control plane (%s) and start it again, on other ports",
			c.Ports[name], name, c.downCommand())
	}
	c.say("port %d of %s is taken, choosing others", c.Ports[name], name)
	var err error
	if c.Ports, err = FreePorts(portNames()); err != nil {
		return err
	}
	return c.savePorts()
}

// firstPort and lastPort bound the ports that are chosen. Linux uses those above them for outgoing connections by default, and a
// connection must not take the port of a program while it restarts.
const (
	firstPort = 20000
	lastPort  = 32767
)

// FreePorts chooses a free port for each name.
func FreePorts(names []string) (map[string]int, error) {
	ports := map[string]int{}
	for _, name := range names {
		for attempt := 0; ports[name] == 0; attempt++ {
			if attempt == 1000 {
				return nil, fmt.Errorf("found no free port between %d and %d: stop programs that listen on loopback", firstPort, lastPort)
			}
			port := firstPort + rand.IntN(lastPort-firstPort+1)
			if isFree(port) && reserve(port) {
				ports[name] = port
			}
		}
	}
	return ports, nil
}

// reservedFor is how long no other control plane chooses a port: much longer than a program needs to listen on it.
const reservedFor = 10 * time.Minute

// reserve reports whether a port was not chosen a short time ago, and reserves it. Control planes that start at the same time
// would choose the same port in one of ten runs of the end-to-end tests.
func reserve(port int) bool {
	cache, err := os.UserCacheDir()
	if err != nil {
		return true
	}
	file := filepath.Join(cache, "nsinit", "ports", strconv.Itoa(port))
	if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) > reservedFor {
		_ = os.Remove(file)
	}
	_ = os.MkdirAll(filepath.Dir(file), 0o755)
	reserved, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return !os.IsExist(err)
	}
	return reserved.Close() == nil
}

// isFree reports whether a program could listen on a port of loopback now.
func isFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
