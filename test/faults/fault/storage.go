/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/test/faults/history"
)

// storageFaults are what can happen to the etcds.
func storageFaults() []Fault {
	return []Fault{
		{Name: "NOSPACE in the etcd of nsinit", Description: "the etcd of nsinit has the alarm `NOSPACE`", Hold: time.Second, Rest: 500 * time.Millisecond, Inject: outOfSpace(history.Nsinit)},
		{Name: "NOSPACE in the etcd of Kubernetes", Description: "the etcd of Kubernetes has the alarm `NOSPACE`", Hold: time.Second, Rest: 500 * time.Millisecond, Inject: outOfSpace(history.Kube)},
		{Name: "slow disk of etcd", Description: "each fsync of the etcd of Kubernetes takes 500 ms longer",
			Programs: []string{kubeEtcd}, Capability: Failpoints, Hold: time.Second, Rest: 200 * time.Millisecond, Inject: slowDisk(oneOf(kubeEtcd))},
		{Name: "slow disk of nsinit's etcd", Description: "each fsync of the leader of nsinit's etcd takes 500 ms longer",
			Programs: []string{nsinitEtcd}, Capability: Failpoints, Hold: time.Second, Rest: 200 * time.Millisecond, Inject: slowDisk(etcdLeader)},
		{Name: history.FaultQueuedEvents, Description: "the namespaces are stored 10,000 times while every replica of one program of nsinit is paused",
			Programs: []string{nsinitAPI, nsinitCM, population}, Rest: 2 * time.Second, Inject: queueEvents},
		{Name: "corrupt value of a NamespaceLifecycle", Description: "the stored value of a NamespaceLifecycle is damaged", Hold: time.Second, Rest: 500 * time.Millisecond, Inject: corrupt("namespacelifecycles")},
		{Name: "corrupt value of a configuration", Description: "the stored value of a configuration is damaged", Hold: time.Second, Rest: 500 * time.Millisecond, Inject: corrupt("namespaceinitializerconfigurations")},
	}
}

// outOfSpace raises the alarm that a member raises when its quota is used up.
func outOfSpace(store history.Store) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		client, err := e.Etcd(store)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, adminTimeout)
		defer cancel()
		status, err := client.Status(ctx, client.Endpoints()[0])
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
		if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, alarm); err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, adminTimeout)
			defer cancel()
			_, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
			return errors.Join(err, client.Close())
		}, nil
	}
}

// slowDisk delays each fsync of the write-ahead log of an etcd, at a failpoint of etcd.
func slowDisk(members selector) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		topology, ok := e.Topology.(HasFailpoints)
		if !ok {
			return nil, errors.New("there are no failpoints")
		}
		chosen, err := members(ctx, e)
		if err != nil {
			return nil, err
		}
		return act(ctx, topology, chosen, "walBeforeSync", "sleep(500)")
	}
}

// queuedEvents is at most how many events queueEvents makes.
const queuedEvents = 10_000

// queueEvents pauses the replicas of a program, and stores the namespaces of the traffic again and again, unchanged. Each time, everything
// that watches namespaces receives an event.
func queueEvents(ctx context.Context, e *Env) (healer, error) {
	client, err := e.Etcd(history.Kube)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stored, err := client.Get(bounded, "/registry/namespaces/"+e.Prefix, clientv3.WithPrefix())
	if err == nil && len(stored.Kvs) == 0 {
		err = errors.New("there are no namespaces")
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	var paused []string
	var errs []error
	for _, program := range replicas(e, []string{nsinitAPI, nsinitCM, population}[e.Random.IntN(3)]) {
		if err := e.Pause(ctx, program); err != nil {
			errs = append(errs, err)
			continue
		}
		paused = append(paused, program)
	}
	var group errgroup.Group
	for _, kv := range stored.Kvs {
		group.Go(func() error { return storeAgain(bounded, client, kv, queuedEvents/len(stored.Kvs)) })
	}
	return func(ctx context.Context) error {
		var errs []error
		for _, program := range paused {
			errs = append(errs, e.Resume(ctx, program))
		}
		revision, err := e.Recorder.CatchUp(ctx, history.Kube, client)
		if err == nil {
			err = e.awaitCaches(ctx, revision)
		}
		if err == nil { // otherwise, the versions would fill the quota of the etcd before kube-apiserver compacts it
			_, err = client.Compact(ctx, revision)
		}
		return errors.Join(append(errs, err, client.Close())...)
	}, errors.Join(append(errs, group.Wait())...)
}

// awaitCaches waits until the cache of namespaces of every kube-apiserver has a revision. Otherwise, each injection would leave the policies
// further behind.
func (e *Env) awaitCaches(ctx context.Context, revision int64) error {
	for _, server := range e.Servers() {
		core, err := kubernetes.NewForConfig(server)
		if err != nil {
			return err
		}
		if err := Retry(ctx, func(ctx context.Context) error {
			_, err := core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: fmt.Sprint(revision), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// storeAgain stores a value several times, and follows the changes of others.
func storeAgain(ctx context.Context, client *clientv3.Client, kv *mvccpb.KeyValue, times int) error {
	key, value, revision := string(kv.Key), string(kv.Value), kv.ModRevision
	for range times {
		written, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return err
		}
		revision = written.Header.Revision
		if written.Succeeded {
			continue
		}
		current := written.Responses[0].GetResponseRange().Kvs
		if len(current) == 0 {
			return nil // it was removed
		}
		value, revision = string(current[0].Value), current[0].ModRevision
	}
	return nil
}

// corrupt replaces the value of an object of nsinit by bytes that nothing decodes, and brings it back
// unless it was deleted meanwhile.
func corrupt(resource string) func(context.Context, *Env) (healer, error) {
	return func(ctx context.Context, e *Env) (healer, error) {
		client, err := e.Etcd(history.Nsinit)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, adminTimeout)
		defer cancel()
		stored, err := client.Get(ctx, "/registry/nsinit.dev/", clientv3.WithPrefix())
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		for _, i := range e.Random.Perm(len(stored.Kvs)) {
			kv := stored.Kvs[i]
			key := string(kv.Key)
			if !strings.Contains(key, "/"+resource+"/"+namePrefix) {
				continue
			}
			written, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)).
				Then(clientv3.OpPut(key, "not an object")).Commit()
			if err != nil {
				return nil, errors.Join(err, client.Close())
			}
			if !written.Succeeded {
				continue // it changed meanwhile
			}
			return func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, adminTimeout)
				defer cancel()
				_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", written.Header.Revision)).
					Then(clientv3.OpPut(key, string(kv.Value))).Commit()
				return errors.Join(err, client.Close())
			}, nil
		}
		return nil, errors.Join(fmt.Errorf("there is none of %s to corrupt", resource), client.Close())
	}
}

// namePrefix begins the names of everything that the traffic makes.
const namePrefix = "f-"
