/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
)

// TestInForce: in each round, a worker writes its configuration to one replica, and then creates a NamespaceLifecycle in
// the other one. The plan has the write.
func TestInForce(t *testing.T) {
	t.Parallel()
	const rounds, workers = 400, 8
	core := testserver.NewCoreAPI(t)
	first := testserver.StartWith(t, testserver.Dir(t), core, func(*options.Options) {})
	second := testserver.StartWith(t, testserver.Dir(t), core, func(o *options.Options) {
		o.EmbeddedEtcdDir, o.Recommended.Etcd.StorageConfig.Transport.ServerList = "", []string{first.EtcdEndpoint}
	})
	replicas := []*testserver.Server{first, second}
	for _, replica := range replicas {
		replica.WaitReady(t)
	}
	var done atomic.Int64
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			name := uniqueName()
			suffix := "." + name + ".example.com"
			first.MustConfigure(t, testserver.Configuration(name))
			for round := 0; done.Add(1) <= rounds; round++ {
				writer := replicas[round%2].Client(t, "admin").NsinitV1alpha1().NamespaceInitializerConfigurations()
				want := []string{fmt.Sprintf("v%d%s", round, suffix)}
				patch := fmt.Sprintf(`{"initializers":[{"name":%q}]}`, want[0])
				if round%3 == 2 { // a removal
					want, patch = nil, `{"initializers":[]}`
				}
				if err := untilAnswered(func() error {
					_, err := writer.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
					return err
				}); err != nil {
					t.Error(err)
					return
				}
				record, err := recordInForce(t, replicas[(round+1)%2], fmt.Sprintf("%s-%d", name, round))
				if err != nil {
					t.Error(err)
					return
				}
				var got []string
				for _, entry := range record.Spec.Plan {
					if strings.HasSuffix(entry.Name, suffix) {
						got = append(got, entry.Name)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("round %d of %s: the plan has %q, want %q", round, name, got, want)
				}
			}
		})
	}
	work.Wait()
	second.Stop(t) // before the etcd in the first
}

// untilAnswered repeats a request that the server has no time for.
func untilAnswered(request func() error) error {
	for {
		if err := request(); !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsServiceUnavailable(err) {
			return err
		}
	}
}

// recordInForce creates the NamespaceLifecycle of a new namespace, which a request without an answer may have created.
func recordInForce(t *testing.T, server *testserver.Server, name string) (record *v1alpha1.NamespaceLifecycle, err error) {
	uid := types.UID("uid-of-" + name)
	server.Core.SetNamespace(testserver.Namespace(name, uid, true))
	lifecycles := server.Client(t, "admin").NsinitV1alpha1().NamespaceLifecycles()
	err = untilAnswered(func() error {
		record, err = lifecycles.Create(t.Context(), testserver.Lifecycle(name, uid), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			record, err = lifecycles.Get(t.Context(), name, metav1.GetOptions{})
		}
		return err
	})
	return record, err
}
