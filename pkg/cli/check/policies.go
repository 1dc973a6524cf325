/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package check

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/client-go/dynamic"
	"k8s.io/component-base/version"

	"github.com/nsinit/nsinit/artifacts"
	"github.com/nsinit/nsinit/pkg/cli/cmdutil"
	"github.com/nsinit/nsinit/pkg/installation"
	"github.com/nsinit/nsinit/sdk/util/timing"
)

// delivery is a set of objects that nsinit delivers.
type delivery struct {
	check string
	// bad is the state if one of them is missing or was changed.
	bad       State
	remedy    string
	manifests []string
}

// delivered checks whether the objects that nsinit delivers exist, and were not changed. Another version of nsinit can deliver
// other objects than those in the plugin.
func (i *inspection) delivered(ctx context.Context) {
	bad, remedy := Problem, installAgain
	if server, err := i.ServerVersion(ctx); err == nil && server != version.Get().GitVersion {
		bad, remedy = Warning, fmt.Sprintf("install the plugin of version %s, which is that of nsinit-apiserver: this one is %s", server, version.Get().GitVersion)
	}
	i.compareAll(ctx, delivery{check: "Policies", bad: bad, remedy: remedy, manifests: artifacts.Policies(!i.webhookStamps)})
	if i.webhookStamps {
		i.compareAll(ctx, delivery{check: "StampWebhook", bad: bad, remedy: remedy + ", with stamp-webhook", manifests: []string{artifacts.OpenedBy()}})
	}
	i.compareAll(ctx, delivery{check: "EarlyWrites", bad: Warning, remedy: remedy, manifests: []string{artifacts.EarlyWrites()}})
}

// inForce checks whether nsinit-controller-manager has brought the stamp and the guard of creation into force.
func (i *inspection) inForce(ctx context.Context) {
	const check = "InForce"
	off, err := i.Core.CoreV1().ConfigMaps(i.namespace).Get(ctx, installation.Off, metav1.GetOptions{})
	switch {
	case err == nil:
		i.off = true
		i.add(check, Warning, "kubectl nsinit on", "user %q ran kubectl nsinit off at %s: new namespaces are not closed", off.Data[installation.OffUser], off.CreationTimestamp.UTC().Format(time.RFC3339))
		return
	case !apierrors.IsNotFound(err):
		i.unknown(check, err)
		return
	}
	stamp := artifacts.Stamp()
	if i.webhookStamps {
		stamp = artifacts.StampWebhook()
	}
	i.compareAll(ctx, delivery{check: check, bad: Problem, manifests: []string{stamp, artifacts.GuardCreate()},
		remedy: "nsinit-controller-manager creates it once nsinit works: fix the other problems, and read its log about the controller gate"})
}

// compareAll compares what is delivered. It adds a result for each difference, or one for all.
func (i *inspection) compareAll(ctx context.Context, d delivery) {
	wanted, err := cmdutil.ReadManifests(i.namespace, d.manifests...)
	if err != nil {
		i.add(d.check, Problem, "install the plugin again", "the plugin is damaged: %v", err)
		return
	}
	problems := len(i.results)
	for _, want := range wanted {
		what := fmt.Sprintf("%s %s", want.GetKind(), want.GetName())
		live, difference, err := i.compare(ctx, want)
		switch {
		case apierrors.IsNotFound(err):
			i.add(d.check, d.bad, d.remedy, "%s is missing", what)
		case apierrors.IsForbidden(err):
			i.unknown(d.check, err)
			return
		case err != nil:
			i.add(d.check, d.bad, d.remedy, "%s: %v", what, err)
		case difference != "":
			i.add(d.check, d.bad, d.remedy, "%s differs from that of the plugin: %s", what, difference)
		case warnings(live) != "":
			i.add(d.check, d.bad, d.remedy, "%s: %s", what, warnings(live))
		}
	}
	if len(i.results) == problems {
		i.add(d.check, OK, "", "%d objects match this version of the plugin", len(wanted))
	}
}

// compare returns the live object, and where its spec or its webhooks differ from the result of applying the
// delivered object in a dry run. The server fills in the same defaults.
func (i *inspection) compare(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, string, error) {
	kind, field := want.GroupVersionKind(), "spec"
	if _, is := want.Object["webhooks"]; is {
		field = "webhooks"
	}
	mapping, err := i.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, "", err
	}
	var client dynamic.ResourceInterface = i.Dynamic.Resource(mapping.Resource)
	live, err := client.Get(ctx, want.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	applied, err := client.Apply(ctx, want.GetName(), want, metav1.ApplyOptions{FieldManager: "kubectl-nsinit-check", Force: true, DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, "", err
	}
	return live, firstDifference(diff.Diff(normal(applied.Object[field]), normal(live.Object[field]))), nil
}

// normal returns a value with every run of white space in its texts as one space, because kustomize
// and other writers of YAML break the lines of expressions differently.
func normal(value any) any {
	return cmdutil.MapTexts(value, func(text string) string { return strings.Join(strings.Fields(text), " ") })
}

// firstDifference returns the first lines that differ, on one line.
func firstDifference(difference string) string {
	var lines []string
	for line := range strings.SplitSeq(difference, "\n") {
		if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if len(lines) == 2 {
			break
		}
	}
	return strings.Join(lines, " ")
}

// warnings returns the warnings of kube-apiserver about the expressions of a policy.
func warnings(live *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(live.Object, "status", "typeChecking", "expressionWarnings")
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("kube-apiserver warns about its expressions: %v", list[0])
}

// nameReuse checks the optional component strict-name-reuse, if it is installed.
func (i *inspection) nameReuse(ctx context.Context) {
	const (
		check  = "NameReuse"
		remedy = installAgain + ", with strict-name-reuse"
	)
	_, policyErr := i.Core.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, "nsinit-strict-name-reuse", metav1.GetOptions{})
	list, err := i.Core.CoreV1().ConfigMaps(i.namespace).Get(ctx, installation.RemovedNamespaces, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && apierrors.IsNotFound(policyErr):
		return
	case apierrors.IsNotFound(err):
		i.add(check, Problem, remedy, "ConfigMap %s/%s is missing: without it, no namespace can be created", i.namespace, installation.RemovedNamespaces)
		return
	case err != nil:
		i.unknown(check, err)
		return
	}
	i.compareAll(ctx, delivery{check: check, bad: Problem, remedy: remedy, manifests: []string{artifacts.StrictNameReuse()}})
	for name, value := range list.Data {
		until, err := time.Parse(time.RFC3339, value)
		if err != nil || i.now.Sub(until) < timing.MaxClockSkew {
			continue
		}
		if strings.HasPrefix(name, "_") {
			name = "every namespace"
		}
		i.add(check, Problem, "read the log of nsinit-controller-manager about "+installation.RemovedNamespaces, "%s is still refused, although its period ended at %s: no controller updates the list", name, value)
		return
	}
}
