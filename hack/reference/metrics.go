/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/nsinit/nsinit/pkg/admission"
	"github.com/nsinit/nsinit/pkg/apiserver"
	"github.com/nsinit/nsinit/pkg/controller/certificates"
	"github.com/nsinit/nsinit/pkg/controller/configuration"
	"github.com/nsinit/nsinit/pkg/controller/lifecycle"
	"github.com/nsinit/nsinit/pkg/storage"
	"github.com/nsinit/nsinit/pkg/webhook"
	nsinitfake "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/fake"
	"github.com/nsinit/nsinit/sdk/initializer"
)

const metricsHeader = `# Metrics

<!-- Written by hack/reference from what the programs register: change the help texts there and run make generate. -->

This page lists the metrics of nsinit itself. These metrics are ALPHA, so their names may change. Each program also exports the metrics of
the Kubernetes libraries, such as request latencies, work queues, leader election and the Go runtime.

To read /metrics of nsinit-apiserver and nsinit-controller-manager, a user needs the ClusterRole ` + "`nsinit:metrics-reader`" + `. Initializers
serve their metrics on the address in --health-bind-address.
`

// metric is a row of the page.
type metric struct{ name, kind, help, labels string }

// registry collects the metrics that are registered with it.
type registry struct {
	metrics.KubeRegistry
	found []metric
}

func newRegistry() *registry { return &registry{KubeRegistry: metrics.NewKubeRegistry()} }

// Register registers a metric.
func (r *registry) Register(m metrics.Registerable) error {
	return errors.Join(r.KubeRegistry.Register(m), r.describe(m, kindOf(m)))
}

// collectors collects the metrics of collectors of Prometheus.
type collectors struct {
	prometheus.Registerer
	*registry
}

// Register implements prometheus.Registerer.
func (c collectors) Register(m prometheus.Collector) error { return c.describe(m, kindOf(m)) }

// CustomRegister registers the metrics of a collector, which are gauges.
func (r *registry) CustomRegister(collector metrics.StableCollector) error {
	return errors.Join(r.KubeRegistry.CustomRegister(collector), r.describe(collector, "gauge"))
}

// describe adds metrics that are registered. It parses the text of a description, because its fields are not exported.
func (r *registry) describe(collector prometheus.Collector, kind string) error {
	descriptions := make(chan *prometheus.Desc, 10)
	collector.Describe(descriptions)
	close(descriptions)
	pattern := regexp.MustCompile(`^Desc\{fqName: "(.*)", help: "(?:\[ALPHA\] )?(.*?)"(?:, unit: ".*?")?, constLabels: \{(?:(.*?)=.*)?\}, variableLabels: \{(.*)\}\}$`)
	for description := range descriptions {
		parts := pattern.FindStringSubmatch(description.String())
		if parts == nil {
			return fmt.Errorf("cannot read %s", description)
		}
		labels := ""
		if all := strings.Trim(parts[3]+","+parts[4], ","); all != "" {
			labels = "`" + strings.ReplaceAll(all, ",", "`, `") + "`"
		}
		r.found = append(r.found, metric{parts[1], kind, parts[2], labels})
	}
	return nil
}

func kindOf(m prometheus.Collector) string {
	switch m.(type) {
	case *metrics.Counter, *metrics.CounterVec, *prometheus.CounterVec:
		return "counter"
	case *metrics.Histogram, *metrics.HistogramVec, *prometheus.HistogramVec:
		return "histogram"
	}
	return "gauge"
}

// metricsPage returns the page of the metrics that nsinit's programs register.
func metricsPage() (string, error) {
	server, manager, sdk := newRegistry(), newRegistry(), newRegistry()
	_, readerErr := admission.NewReader(nil, nil, clock.RealClock{}, server.Register)
	_, err := initializer.New(initializer.Options{
		Name: "any.example.com", Initialize: func(context.Context, *corev1.Namespace) error { return nil },
		Core: fake.NewClientset(), Nsinit: nsinitfake.NewClientset(), Metrics: collectors{nil, sdk},
	})
	_, webhookErr := webhook.NewEarlyWrites(nil, nil, server.Register)
	_, certificatesErr := certificates.New(certificates.Dependencies{Register: manager.Register}, certificates.Options{})
	if err := errors.Join(err, readerErr, webhookErr, certificatesErr,
		collectors{nil, server}.Register(apiserver.ServingCertificate{}.Metric()),
		storage.NewMonitor(storage.MonitorOptions{}).Register(collectors{nil, server}.Register),
		lifecycle.NewMetrics().Register(manager.Register),
		manager.CustomRegister(lifecycle.NewCollector(nil, nil, nil)),
		manager.CustomRegister(configuration.NewCollector(nil)),
	); err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(metricsHeader)
	for _, program := range []struct {
		title string
		*registry
	}{{"nsinit-apiserver", server}, {"nsinit-controller-manager", manager}, {"Initializers on the SDK", sdk}} {
		fmt.Fprintf(&page, "\n## %s\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n", program.title)
		slices.SortFunc(program.found, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
		for _, m := range program.found {
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, m.help)
		}
	}
	return page.String(), nil
}
