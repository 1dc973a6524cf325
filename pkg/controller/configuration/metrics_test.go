/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package configuration

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"

	listers "github.com/nsinit/nsinit/sdk/generated/listers/nsinit/v1alpha1"
)

func TestCollector(t *testing.T) {
	c := reported(10*time.Second, time.Hour, -1)
	setServed(c, start())
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := indexer.Add(c); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP nsinit_initializer_served [ALPHA] 1 while a program reports that it serves the initializer, and 0 after the reports have ended. The metric is absent before the first report.
# TYPE nsinit_initializer_served gauge
nsinit_initializer_served{configuration="c",initializer="a.example.com"} 1
nsinit_initializer_served{configuration="c",initializer="b.example.com"} 0
`
	if err := testutil.CustomCollectAndCompare(NewCollector(listers.NewNamespaceInitializerConfigurationLister(indexer)), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
