/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/nsinit/nsinit/pkg/embeddedetcd"
)

const (
	// interval is the time between two observations. shortInterval is used while three quarters of the
	// quota are in use, so that a full storage is noticed before the reserve is used.
	interval      = time.Second
	shortInterval = 200 * time.Millisecond
	// timeout bounds one observation of a member.
	timeout = 2 * time.Second
	// alarmPause and reclaimPause are the times between two attempts to reclaim space, with and
	// without an alarm.
	alarmPause     = 2 * time.Second
	reclaimPause   = 30 * time.Second
	reclaimTimeout = 5 * time.Minute

	documentation = `see "When the storage is full" in docs/storage.md`
)

// Usage is how full an etcd member is.
type Usage struct {
	// Size and InUse are the size and the used size of the database, in bytes.
	Size, InUse int64
	// Quota is the size at which etcd refuses writes, in bytes. 0: not known.
	Quota int64
	// Alarm says that etcd has raised the alarm NOSPACE, and refuses every write.
	Alarm bool
}

// reserved says whether only the reserve for updates and deletions is left.
func (u Usage) reserved() bool { return u.Quota > 0 && u.InUse >= u.Quota/10*9 }

// fragmented says whether to defragment: etcd refuses writes, or soon would, and a quarter of the
// quota is free space inside the database.
func (u Usage) fragmented() bool {
	return u.Alarm || u.Quota > 0 && u.Size >= u.Quota/4*3 && u.Size-u.InUse >= u.Quota/4
}

// reclaimAfter returns the time between two attempts to reclaim space, and whether to reclaim: the
// database is fragmented, or the reserve is used, possibly by old revisions.
func (u Usage) reclaimAfter() (time.Duration, bool) {
	if u.Alarm {
		return alarmPause, true
	}
	return reclaimPause, u.reserved() || u.fragmented()
}

// MonitorOptions configures a Monitor.
type MonitorOptions struct {
	// Client is a client of etcd.
	Client *clientv3.Client
	// Embedded says that Client is a client of the embedded etcd.
	Embedded bool
}

// Monitor monitors how full the storage is.
type Monitor struct {
	MonitorOptions

	mu    sync.Mutex
	usage Usage
	known bool
	// down is why the embedded etcd does not run, or nil.
	down error
	// reclaimed is when space was reclaimed last.
	reclaimed time.Time
}

// NewMonitor returns a Monitor that is not running yet.
func NewMonitor(options MonitorOptions) *Monitor { return &Monitor{MonitorOptions: options} }

// Run observes the storage until the context ends.
func (m *Monitor) Run(ctx context.Context) {
	for ctx.Err() == nil {
		m.review(ctx)
		delay := interval
		if usage, _ := m.Usage(); m.Embedded && usage.InUse >= usage.Quota/4*3 {
			delay = shortInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// review observes the storage, and reclaims space if needed.
func (m *Monitor) review(ctx context.Context) {
	usage, err := m.observe(ctx)
	m.update(ctx, usage, err)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot read how full the storage is", "err", err)
		return
	}
	if pause, worth := usage.reclaimAfter(); !m.Embedded || !worth || time.Since(m.reclaimed) < pause {
		return
	}
	m.reclaim(ctx, usage)
	m.reclaimed = time.Now()
	usage, err = m.observe(ctx)
	m.update(ctx, usage, err)
}

// Problem returns why no object can be created, or nil. The message for a cause does not change.
func (m *Monitor) Problem() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.down != nil:
		return fmt.Errorf("nsinit's storage does not answer: %w", m.down)
	case m.usage.Alarm:
		return errors.New("nsinit's storage is full: etcd has raised the alarm NOSPACE and refuses every write; " + documentation)
	case m.Embedded && m.usage.reserved():
		return errors.New("nsinit's storage is full: the rest of its quota is reserved for updates and deletions; " +
			"delete namespaces, configurations or populations that are not needed, or enlarge the volume; " + documentation)
	}
	return nil
}

// Usage returns the last observation, and whether there is one.
func (m *Monitor) Usage() (Usage, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage, m.known
}

// update stores an observation, or why there is none, and logs when Problem changes. After a timeout it is not known whether etcd runs:
// it does not answer while it is defragmented.
func (m *Monitor) update(ctx context.Context, usage Usage, err error) {
	before := m.Problem()
	m.mu.Lock()
	code := status.Code(err)
	switch {
	case err == nil:
		m.usage, m.known, m.down = usage, true, nil
	case m.Embedded && (code == codes.Unavailable || code == codes.FailedPrecondition): // no process listens, or it answers with the reason
		m.down = err
	}
	usage = m.usage
	m.mu.Unlock()
	after := m.Problem()
	logger := klog.FromContext(ctx).WithValues("sizeBytes", usage.Size, "inUseBytes", usage.InUse, "quotaBytes", usage.Quota)
	switch {
	case after != nil && (before == nil || before.Error() != after.Error()):
		logger.Error(after, "No object can be created")
	case after == nil && before != nil:
		logger.Info("The storage has space again")
	}
}

// observe returns the usage of the fullest member.
func (m *Monitor) observe(ctx context.Context) (Usage, error) {
	var fullest Usage
	var errs []error
	for _, endpoint := range m.Client.Endpoints() {
		asking, cancel := context.WithTimeout(ctx, timeout)
		status, err := m.status(asking, endpoint)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", endpoint, err))
			continue
		}
		fullest.Alarm = fullest.Alarm || strings.Contains(strings.Join(status.Errors, " "), etcdserverpb.AlarmType_NOSPACE.String())
		if status.DbSize >= fullest.Size {
			fullest.Size, fullest.InUse, fullest.Quota = status.DbSize, status.DbSizeInUse, status.DbSizeQuota
		}
	}
	if len(errs) == len(m.Client.Endpoints()) {
		return fullest, errors.Join(errs...)
	}
	return fullest, nil
}

// status asks one member. The client makes a connection for each question, except to the only member.
func (m *Monitor) status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	if len(m.Client.Endpoints()) > 1 {
		return m.Client.Status(ctx, endpoint)
	}
	status, err := etcdserverpb.NewMaintenanceClient(m.Client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
	return (*clientv3.StatusResponse)(status), err
}

// reclaim compacts the database. It defragments it if that is needed, or is once old revisions are gone.
func (m *Monitor) reclaim(ctx context.Context, usage Usage) {
	ctx, cancel := context.WithTimeout(ctx, reclaimTimeout)
	defer cancel()
	logger := klog.FromContext(ctx)
	defragmented := false
	before, after, err := embeddedetcd.Reclaim(ctx, m.Client, m.Client.Endpoints()[0], func(status *clientv3.StatusResponse) bool {
		compacted := Usage{Size: status.DbSize, InUse: status.DbSizeInUse, Quota: status.DbSizeQuota}
		defragmented = usage.fragmented() || compacted.fragmented()
		return defragmented
	})
	if err != nil {
		logger.Error(err, "Cannot reclaim space of the storage, retrying")
		return
	}
	logger.Info("Reclaimed space of the storage", "defragmented", defragmented, "beforeBytes", before, "afterBytes", after)
}
