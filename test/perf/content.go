/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// holdParticipant is the finalizer that keeps a namespace, as that of nsinit does while participants clean up.
const holdParticipant = "example.com/participant"

// holdContent is the finalizer that the policy nsinit-content reads.
const holdContent = "nsinit.dev/content"

// heldSecret is the content of each namespace.
const heldSecret = "credentials"

// hold is a way to keep namespaces, or their content.
type hold struct {
	name string
	// objects says that each Secret has a finalizer.
	objects bool
	// policy says that the policy nsinit-content refuses the deletions of the content.
	policy bool
	// suspend says that "kubernetes" is removed from spec.finalizers meanwhile.
	suspend bool
}

// holds are the arms of the experiment.
func holds() []hold {
	return []hold{
		{name: "content is not held"},
		{name: "finalizers of the objects", objects: true},
		{name: "policy", policy: true},
		{name: "policy, suspended", policy: true, suspend: true},
	}
}

// holdOptions are the sizes of the experiment.
type holdOptions struct {
	planes string
	only   *regexp.Regexp
	counts []int
	lasts  time.Duration
	rounds int
}

func (o *holdOptions) setOnly(value string) (err error) {
	o.only, err = regexp.Compile(value)
	return err
}

func (o *holdOptions) setCounts(value string) error {
	o.counts = nil
	for one := range strings.SplitSeq(value, ",") {
		count, err := strconv.Atoi(one)
		if err != nil || count < 1 {
			return fmt.Errorf("%q is not a number of namespaces", one)
		}
		o.counts = append(o.counts, count)
	}
	return nil
}

// measureHolds runs the experiment and prints a row of a table for each sample. Kubernetes runs without nsinit: this
// program does what nsinit's controller would do.
func measureHolds(ctx context.Context, o holdOptions) error {
	p, err := startPlane(ctx, filepath.Join(o.planes, "content"), false)
	if err != nil {
		return err
	}
	defer func() { _ = p.stop(ctx) }()
	if _, err := p.Admin(ctx, "apply", "--filename", filepath.Join("artifacts", "policies", "content.yaml")); err != nil {
		return err
	}
	fmt.Println("| content | namespaces | held | requests/s | retries/min | cores, controller manager | cores, API server | Secrets left | others: usable, p50 and max | others: removed, p50 and max | removed after the release, p50 and max |")
	fmt.Println(strings.Repeat("| --- ", 11) + "|")
	for round := range o.rounds {
		for _, count := range o.counts {
			arms := slices.DeleteFunc(holds(), func(arm hold) bool { return o.only != nil && !o.only.MatchString(arm.name) })
			if round%2 == 1 {
				slices.Reverse(arms)
			}
			for i, arm := range arms {
				row, err := p.sampleHold(ctx, arm, fmt.Sprintf("held-%d-%d-%d", round, count, i), count, o.lasts)
				if err != nil {
					return fmt.Errorf("%s, %d namespaces: %w", arm.name, count, err)
				}
				fmt.Printf("| %s | %d | %s | %s |\n", arm.name, count, o.lasts, row)
			}
		}
	}
	return nil
}

// sampleHold keeps a number of deleted namespaces for a time, releases them, and describes what that has cost.
func (p *plane) sampleHold(ctx context.Context, arm hold, prefix string, count int, lasts time.Duration) (string, error) {
	names, err := p.fill(ctx, arm, prefix, count)
	if err != nil {
		return "", err
	}
	if _, err := p.idle(ctx, 2*time.Second); err != nil {
		return "", err
	}
	before, err := p.managerCounts(ctx)
	if err != nil {
		return "", err
	}
	used, err := p.cpu()
	if err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := repeat(count, 10, func(i int) error { return p.deleteHeld(ctx, arm, names[i]) }); err != nil {
		return "", err
	}
	ready, deleted, err := p.others(ctx, prefix, began.Add(lasts))
	if err != nil {
		return "", err
	}
	took := time.Since(began).Seconds()
	usedAfter, err := p.cpu()
	if err != nil {
		return "", err
	}
	after, err := p.managerCounts(ctx)
	if err != nil {
		return "", err
	}
	secrets, err := p.core.CoreV1().Secrets("").List(ctx, metav1.ListOptions{LabelSelector: "held=" + prefix})
	if err != nil {
		return "", err
	}
	removed, err := p.releaseHeld(ctx, arm, names)
	if err != nil {
		return "", err
	}
	cores := func(program string) string { return fmt.Sprintf("%.2f", (usedAfter[program]-used[program])/took) }
	return strings.Join([]string{
		fmt.Sprintf("%.0f", (after.requests-before.requests)/took), fmt.Sprintf("%.0f", (after.retries-before.retries)/took*time.Minute.Seconds()),
		cores("kube-controller-manager"), cores("kube-apiserver"),
		fmt.Sprint(len(secrets.Items)), p50max(ready), p50max(deleted), p50max(removed),
	}, " | "), nil
}

// fill creates namespaces with content.
func (p *plane) fill(ctx context.Context, arm hold, prefix string, count int) ([]string, error) {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	if _, _, err := p.burst(ctx, prefix, count, 10, plainSigns()); err != nil {
		return nil, err
	}
	_, err := repeat(count, 10, func(i int) error {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: heldSecret, Labels: map[string]string{"held": prefix}}}
		if arm.objects {
			secret.Finalizers = []string{holdParticipant}
		}
		if _, err := p.core.CoreV1().Secrets(names[i]).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return err
		}
		return p.finalizeWith(ctx, names[i], func(namespace *corev1.Namespace) {
			namespace.Finalizers = append(namespace.Finalizers, holdParticipant)
			if arm.policy {
				namespace.Finalizers = append(namespace.Finalizers, holdContent)
			}
		})
	})
	return names, err
}

// deleteHeld deletes a namespace, and removes "kubernetes" from spec.finalizers where the arm says so.
func (p *plane) deleteHeld(ctx context.Context, arm hold, name string) error {
	if err := p.core.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil || !arm.suspend {
		return err
	}
	return p.finalizeWith(ctx, name, func(namespace *corev1.Namespace) { namespace.Spec.Finalizers = nil })
}

// releaseHeld releases namespaces, and returns how long it takes until each is removed, in seconds.
func (p *plane) releaseHeld(ctx context.Context, arm hold, names []string) ([]float64, error) {
	removed := make([]float64, len(names))
	_, err := repeat(len(names), len(names), func(i int) error {
		began := time.Now()
		if arm.objects {
			if _, err := p.core.CoreV1().Secrets(names[i]).Patch(ctx, heldSecret, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		if err := p.finalizeWith(ctx, names[i], func(namespace *corev1.Namespace) {
			namespace.Finalizers = nil
			if arm.suspend {
				namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
			}
		}); err != nil {
			return err
		}
		err := p.waitRemoved(ctx, names[i])
		removed[i] = time.Since(began).Seconds()
		return err
	})
	return removed, err
}

// others creates and deletes namespaces that nothing holds, with four clients until a time, and returns how long that took.
func (p *plane) others(ctx context.Context, prefix string, until time.Time) (ready, deleted []float64, err error) {
	const clients = 4
	var mu sync.Mutex
	var group errgroup.Group
	for client := range clients {
		group.Go(func() error {
			for i := 0; time.Now().Before(until); i++ {
				name := fmt.Sprintf("other-%s-%d-%d", prefix, client, i)
				times, _, err := p.burstOf(ctx, name, 1, 1, plainSigns(), p.createNamespace)
				if err != nil {
					return err
				}
				began := time.Now()
				if err := p.core.CoreV1().Namespaces().Delete(ctx, name+"-0", metav1.DeleteOptions{}); err != nil {
					return err
				}
				if err := p.waitRemoved(ctx, name+"-0"); err != nil {
					return err
				}
				mu.Lock()
				ready, deleted = append(ready, times...), append(deleted, time.Since(began).Seconds())
				mu.Unlock()
			}
			return nil
		})
	}
	err = group.Wait()
	return ready, deleted, err
}

// finalizeWith changes a namespace and its finalizers in one write.
func (p *plane) finalizeWith(ctx context.Context, name string, change func(namespace *corev1.Namespace)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		namespace, err := p.core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(namespace)
		_, err = p.core.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
		return err
	})
}

// waitRemoved waits until a namespace is removed from storage.
func (p *plane) waitRemoved(ctx context.Context, name string) error {
	const limit, interval = 5 * time.Minute, 200 * time.Millisecond
	err := wait.PollUntilContextTimeout(ctx, interval, limit, true, func(ctx context.Context) (bool, error) {
		_, err := p.core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("namespace %q is not removed after %s: %w", name, limit, err)
	}
	return nil
}

// managerCounts is what kube-controller-manager has counted since it started.
type managerCounts struct {
	// requests is the number of requests that it has sent.
	requests float64
	// retries is how often its namespace controller has tried a namespace again.
	retries float64
}

// managerCounts reads the metrics of kube-controller-manager.
func (p *plane) managerCounts(ctx context.Context) (managerCounts, error) {
	var counts managerCounts
	config := rest.CopyConfig(p.admin)
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", p.Ports["kube-controller-manager"])
	config.CAData, config.CAFile, config.Insecure = nil, "", true // it makes its own certificate
	config.Dial = (&net.Dialer{}).DialContext
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return counts, err
	}
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return counts, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		count, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case strings.HasPrefix(name, "rest_client_requests_total{"):
			counts.requests += count
		case strings.HasPrefix(name, `workqueue_retries_total{name="namespace"`):
			counts.retries += count
		}
	}
	return counts, nil
}

func p50max(times []float64) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	return fmt.Sprintf("%.1f s, %.1f s", median(times), times[len(times)-1])
}
