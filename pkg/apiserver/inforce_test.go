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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nsinit/nsinit/pkg/apiserver/options"
	"github.com/nsinit/nsinit/pkg/apiserver/testserver"
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
				if _, err := writer.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
					t.Error(err)
					return
				}
				var got []string
				for _, entry := range replicas[(round+1)%2].MustRecord(t, fmt.Sprintf("%s-%d", name, round)).Spec.Plan {
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
