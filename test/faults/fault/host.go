/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package fault

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/test/faults/history"
	"github.com/nsinit/nsinit/test/faults/traffic"
)

// Optional parts of a Topology.
type (
	// ReplacesStorage replaces the data of nsinit's etcd, which does not run, by none, or by the snapshot in a file.
	ReplacesStorage interface {
		ReplaceStorage(snapshot string) error
	}
	// HasVolume fills the volume of one etcd of nsinit.
	HasVolume interface {
		FillVolume(ctx context.Context) error
		FreeVolume(ctx context.Context) error
		VolumeProgram() string
	}
	// HasCertificates replaces the serving certificate of an nsinit-apiserver.
	HasCertificates interface {
		ExpireCertificate(ctx context.Context, program string) error
		RenewCertificate(ctx context.Context, program string) error
	}
	// SkewsClocks sets the clock of a program of nsinit forward or back. Zero ends that.
	SkewsClocks interface {
		SkewClock(ctx context.Context, program string, offset time.Duration) error
	}
	// HasVersions chooses the version of a program from its next start on: an earlier one, or the one that is tested.
	HasVersions interface {
		UseEarlier(program string, earlier bool)
	}
	// HasEtcdLeader knows which member of nsinit's etcd leads.
	HasEtcdLeader interface {
		NsinitEtcdLeader(ctx context.Context) (string, error)
	}
)

// renewBound is longer than the time between two renewals of the lease of the controllers.
const renewBound = 2500 * time.Millisecond

// pauseLeader pauses the nsinit-controller-manager that holds the lease: the one without which the lease
// is not renewed.
func pauseLeader(ctx context.Context, e *Env) (healer, error) {
	renewed := func() (string, error) {
		lease, err := e.Core.CoordinationV1().Leases(installation.DefaultNamespace).Get(ctx, installation.ControllerManager, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return lease.Spec.RenewTime.String(), nil
	}
	for _, program := range replicas(e, nsinitCM) {
		if e.Pause(ctx, program) != nil { // it lost the lease the last time, and its restart is delayed
			if err := errors.Join(e.Kill(ctx, program), e.Run(ctx, program)); err != nil {
				return nil, err
			}
			continue
		}
		resume := func(ctx context.Context) error { return e.Resume(ctx, program) }
		before, err := renewed()
		if err != nil {
			return resume, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(renewBound):
		}
		after, err := renewed()
		if err != nil || before == after {
			return resume, err
		}
		if err := resume(ctx); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no controller leads")
}

func etcdLeader(ctx context.Context, e *Env) ([]string, error) {
	cluster, ok := e.Topology.(HasEtcdLeader)
	if !ok {
		return nil, errors.New("the leader is not known")
	}
	program, err := cluster.NsinitEtcdLeader(ctx)
	return []string{program}, err
}

// hostFaults are those of volumes, certificates and storages.
func hostFaults() []Fault {
	return []Fault{
		{Name: "storage of nsinit lost", Description: "the storage of nsinit is lost", Capability: Storage, Hold: 2 * time.Second, Rest: time.Second, Inject: loseStorage},
		{Name: "older snapshot of nsinit's etcd", Description: "the etcd of nsinit is replaced by a snapshot, which is up to four seconds older", Capability: Storage, Hold: time.Second, Rest: 500 * time.Millisecond, Inject: restoreSnapshot},
		{Name: "full volume", Description: "the volume of a member of nsinit's etcd is full", Capability: Volumes, Hold: 2 * time.Second, Rest: time.Second, Inject: fillVolume},
		{Name: "expired certificate", Description: "the serving certificate of a replica of nsinit-apiserver has expired",
			Capability: Certificates, Programs: []string{nsinitAPI}, Hold: time.Second, Rest: 500 * time.Millisecond, Inject: expire},
		{Name: "clock skew", Description: "the clock of one program of nsinit is 90 s fast or slow", Capability: SkewClock, Hold: 2 * time.Second, Rest: 500 * time.Millisecond, Inject: skewClock(90 * time.Second)},
		{Name: "clock jump", Description: "the clock of one program of nsinit is an hour fast or slow", Capability: SkewClock, Hold: 2 * time.Second, Rest: 500 * time.Millisecond, Inject: skewClock(time.Hour)},
	}
}

// skewClock sets the clock of one program of nsinit forward or back.
func skewClock(by time.Duration) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		topology, ok := e.Topology.(SkewsClocks)
		if !ok {
			return nil, errors.New("clocks cannot be set")
		}
		chosen, err := e.anyOf([]string{nsinitAPI, nsinitCM, population}[e.Random.IntN(3)])
		if err != nil {
			return nil, err
		}
		offset := by
		if e.Random.IntN(2) == 0 {
			offset = -by
		}
		return func(ctx context.Context) error {
			return Retry(ctx, func(ctx context.Context) error { return topology.SkewClock(ctx, chosen[0], 0) })
		}, topology.SkewClock(ctx, chosen[0], offset)
	}
}

// loseStorage loses the storage. To heal, an administrator registers the initializers again and
// acknowledges the loss, as docs/storage.md says.
func loseStorage(ctx context.Context, e *Env) (healer, error) {
	err := e.replaceStorage(ctx, "")
	heal := func(ctx context.Context) error {
		if err := Retry(ctx, func(ctx context.Context) error { return traffic.Install(ctx, e.Servers()[0]) }); err != nil {
			return err
		}
		e.mark(ctx, history.MarkReplaced)
		return Retry(ctx, func(ctx context.Context) error {
			return ignoreNotFound(e.Core.CoreV1().ConfigMaps(installation.DefaultNamespace).Delete(ctx, "nsinit-storage", metav1.DeleteOptions{}))
		})
	}
	return heal, err
}

// restoreSnapshot saves a snapshot of the storage, waits, and restores it, as docs/backup.md says.
func restoreSnapshot(ctx context.Context, e *Env) (healer, error) {
	client, err := e.Etcd(history.Nsinit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	file, err := os.CreateTemp("", "nsinit-snapshot")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	saved, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	_, err = io.Copy(file, saved.Snapshot)
	if err := errors.Join(err, saved.Snapshot.Close(), file.Close()); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(e.Random.IntN(4000)) * time.Millisecond):
	}
	return func(ctx context.Context) error {
		errs := []error{e.runAll(ctx, replicas(e, nsinitEtcd)), e.runAll(ctx, replicas(e, nsinitAPI))}
		for _, server := range replicas(e, nsinitAPI) {
			errs = append(errs, e.awaitReady(ctx, server))
		}
		return errors.Join(errs...)
	}, e.replaceStorage(ctx, file.Name())
}

// replaceStorage replaces the storage of nsinit by an empty one, or by the snapshot in a file, while nothing writes into it.
func (e *Env) replaceStorage(ctx context.Context, snapshot string) error {
	topology, ok := e.Topology.(ReplacesStorage)
	if !ok {
		return errors.New("the storage cannot be replaced")
	}
	client, err := e.Etcd(history.Nsinit)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	catchUp := func() error {
		_, err := e.Recorder.CatchUp(ctx, history.Nsinit, client)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	servers, members := replicas(e, nsinitAPI), replicas(e, nsinitEtcd)
	mark := history.MarkLost
	if snapshot != "" {
		mark = history.MarkRestored
	}
	for _, step := range []func() error{
		func() error { return e.killAll(ctx, servers) },
		catchUp,
		func() error { return e.killAll(ctx, members) },
		func() error {
			e.mark(ctx, mark)
			e.Recorder.Replaced(history.Nsinit, snapshot != "")
			return topology.ReplaceStorage(snapshot)
		},
		func() error { return e.runAll(ctx, members) },
		func() error {
			if snapshot == "" {
				return nil // nothing is stored yet
			}
			return catchUp()
		},
		func() error { return e.runAll(ctx, servers) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// mark adds a mark with the revision of Kubernetes' etcd.
func (e *Env) mark(ctx context.Context, name string) {
	mark := history.Mark{Name: name}
	if client, err := e.Etcd(history.Kube); err == nil {
		defer func() { _ = client.Close() }()
		mark.KubeRevision, err = e.Recorder.CatchUp(ctx, history.Kube, client)
		if err != nil {
			mark.Error = err.Error()
		}
	}
	e.Recorder.Mark(mark)
}

// fillVolume fills the volume of a member. One that ended because of that is restarted by what
// supervises it.
func fillVolume(ctx context.Context, e *Env) (healer, error) {
	topology, ok := e.Topology.(HasVolume)
	if !ok {
		return nil, errors.New("there is no volume")
	}
	return topology.FreeVolume, topology.FillVolume(ctx)
}

func expire(ctx context.Context, e *Env) (healer, error) {
	topology, ok := e.Topology.(HasCertificates)
	if !ok {
		return nil, errors.New("certificates cannot be replaced")
	}
	chosen, err := e.anyOf(nsinitAPI)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return topology.RenewCertificate(ctx, chosen[0]) }, topology.ExpireCertificate(ctx, chosen[0])
}
