/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Package counts counts the requests to a server, and its writes to etcd, by its metrics.
package counts

import (
	"bytes"
	"context"
	"path"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Events is the resource that callers count separately: their number depends on how fast the machine is.
const Events = "events"

// Counts are numbers since a server started.
type Counts struct {
	// Requests are by verb, such as "PUT", and resource, such as "namespaces/status". Lists, watches, and requests about leases
	// and permissions are not among them: their number does not depend on the number of namespaces.
	Requests map[Operation]float64
	// Writes are the write transactions in etcd, by operation, such as "create", and resource.
	Writes map[Operation]float64
}

// Operation is what is counted.
type Operation struct{ Verb, Resource string }

// Read reads the metrics of a server.
func Read(ctx context.Context, config *rest.Config) (Counts, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return Counts{}, err
	}
	text, err := client.RESTClient().Get().AbsPath("/metrics").MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return Counts{}, err
	}
	return parse(text)
}

// unrelated are resources whose requests do not depend on the number of namespaces.
var unrelated = []string{"", "leases", "subjectaccessreviews", "tokenreviews", "selfsubjectaccessreviews", "apiservices", "apiservices.apiregistration.k8s.io"} //nolint:gochecknoglobals // a constant

func parse(text []byte) (Counts, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return Counts{}, err
	}
	c := Counts{Requests: map[Operation]float64{}, Writes: map[Operation]float64{}}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := labelsOf(metric)
		if verb := labels["verb"]; verb != "LIST" && verb != "WATCH" && !slices.Contains(unrelated, labels["resource"]) {
			c.Requests[Operation{verb, path.Join(labels["resource"], labels["subresource"])}] += metric.GetCounter().GetValue()
		}
	}
	for _, metric := range families["etcd_request_duration_seconds"].GetMetric() {
		labels := labelsOf(metric)
		if operation := labels["operation"]; slices.Contains([]string{"create", "update", "delete"}, operation) && !slices.Contains(unrelated, labels["resource"]) {
			c.Writes[Operation{operation, labels["resource"]}] += float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return c, nil
}

// Sum returns the sum of counts, without those of resources.
func Sum(all map[Operation]float64, without ...string) float64 {
	sum := 0.0
	for operation, count := range all {
		if !slices.Contains(without, operation.Resource) {
			sum += count
		}
	}
	return sum
}

func labelsOf(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}
