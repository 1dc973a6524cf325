/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// volumeSize is the size of the volume in MiB. etcd allocates 64 MiB for each segment of its log, the next one included, and keeps closed
// segments until it has made a snapshot: after some thousand injections, that is more than two.
const volumeSize = 512

// reloadLimit is how long a server may take to serve a certificate that was replaced.
const reloadLimit = 2 * time.Minute

// VolumeProgram is the program whose data FillVolume affects: the last member of nsinit's etcd.
func (c *Cluster) VolumeProgram() string {
	return replicaName(nsinitEtcd, c.options.Topology.nsinitEtcds()-1)
}

// volume is the directory of the data of VolumeProgram.
func (c *Cluster) volume() string { return filepath.Join(c.Dir, c.VolumeProgram()) }

func (c *Cluster) mountVolume() error {
	if !c.options.Volume {
		return nil
	}
	if err := os.MkdirAll(c.volume(), 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", c.volume(), "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", volumeSize)); err != nil {
		return fmt.Errorf("cannot mount a tmpfs on %s, which takes root: %w", c.volume(), err)
	}
	return nil
}

// unmountAll unmounts what is mounted directly in a directory.
func unmountAll(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && filepath.Dir(fields[1]) == dir {
			errs = append(errs, syscall.Unmount(fields[1], syscall.MNT_DETACH))
		}
	}
	return errors.Join(errs...)
}

func (c *Cluster) filler() string { return filepath.Join(c.volume(), "fill") }

// FillVolume leaves no free space on the volume.
func (c *Cluster) FillVolume(ctx context.Context) error {
	if !c.options.Volume {
		return errors.New("the cluster has no volume: set Options.Volume")
	}
	file, err := os.OpenFile(c.filler(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	zeros := make([]byte, 1<<20)
	for ctx.Err() == nil {
		n, err := file.Write(zeros)
		if errors.Is(err, syscall.ENOSPC) {
			if len(zeros) == 1 {
				return nil
			}
			zeros = zeros[:max(1, (len(zeros)-n)/2)] // the last free bytes too
		} else if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// FreeVolume ends FillVolume.
func (c *Cluster) FreeVolume(context.Context) error {
	if err := os.Remove(c.filler()); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// certificates makes a serving certificate for each nsinit-apiserver.
func (c *Cluster) certificates() error {
	for i := range c.options.Topology.NsinitAPIServers {
		if err := c.base.PKI().EnsureServing(replicaName(nsinitAPIServer, i), "nsinit-ca", "nsinit-apiserver.nsinit-system.svc"); err != nil {
			return err
		}
	}
	return nil
}

// ExpireCertificate replaces the serving certificate of an nsinit-apiserver by an expired one. It returns
// when the server serves it, and resets the connections of the aggregator, which would continue to use the
// former.
func (c *Cluster) ExpireCertificate(ctx context.Context, which string) error {
	return c.reissue(ctx, which, time.Now().Add(-time.Second))
}

// RenewCertificate ends ExpireCertificate.
func (c *Cluster) RenewCertificate(ctx context.Context, which string) error {
	return c.reissue(ctx, which, time.Now().Add(24*time.Hour))
}

func (c *Cluster) reissue(ctx context.Context, program string, until time.Time) error {
	i := slices.IndexFunc(c.replicas, func(r *replica) bool { return r.name == program })
	if i < 0 {
		return fmt.Errorf("%q has no certificate that can be replaced: give an nsinit-apiserver", program)
	}
	if err := c.base.PKI().Reissue(program, "nsinit-ca", until); err != nil {
		return err
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, reloadLimit, true, func(ctx context.Context) (bool, error) {
		last = c.serves(ctx, program, until)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", program, err, last)
	}
	c.Link(aggregator + "/" + program).Reset()
	return nil
}

// serves checks the end of the validity of the certificate that a program serves.
func (c *Cluster) serves(ctx context.Context, program string, until time.Time) error {
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is read, not trusted
	connection, err := dialer.DialContext(ctx, "tcp", c.address(program))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	state := connection.(*tls.Conn).ConnectionState()
	if got := state.PeerCertificates[0].NotAfter; !got.Equal(until.UTC().Truncate(time.Second)) {
		return fmt.Errorf("it serves a certificate that is valid until %s", got)
	}
	return nil
}
