/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package traffic

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/test/faults/history"
)

// fates are when the tenant of a slot deletes its namespace: so long after its creation, or after it
// was seen open. Without a time, it is never deleted.
type fate struct {
	afterCreation, afterOpening time.Duration
}

func (t *Traffic) fate() fate {
	switch t.pick(6) {
	case 0:
		return fate{afterCreation: time.Millisecond}
	case 1, 2:
		return fate{afterCreation: t.between(50*time.Millisecond, 3*time.Second)}
	case 3, 4:
		return fate{afterOpening: t.between(time.Millisecond, 2*time.Second)}
	}
	return fate{afterOpening: t.between(2*time.Second, 20*time.Second)}
}

// useSlot creates, uses and deletes one namespace after the other until the context ends.
func (t *Traffic) useSlot(ctx context.Context, slot int) {
	name := fmt.Sprintf("%s-%02d", t.options.Prefix, slot)
	tenant := fmt.Sprintf("tenant-%02d", slot)
	clients, err := t.tenant(tenant)
	if err != nil {
		return
	}
	portal, err := kubernetes.NewForConfig(t.user(t.options.Servers[0], history.ClientPortal, history.RoleTenant, portalUser))
	if err != nil {
		return
	}
	for serial := 0; ctx.Err() == nil; serial++ {
		current := name
		if !t.options.Recreate || slot%2 == 1 { // who does not wait for a name makes more namespaces
			current = fmt.Sprintf("%s-%03d", name, serial)
		}
		created, creators := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: current}}, clients
		if t.chance(0.3) {
			created.Annotations = map[string]string{v1alpha1.AnnotationOnBehalfOf: tenant}
		}
		if t.chance(0.3) { // the stamp removes the annotation of others
			creators = []kubernetes.Interface{portal}
		}
		namespace := t.create(ctx, creators, created)
		if namespace == nil {
			return
		}
		t.use(ctx, clients, tenant, namespace)
	}
}

// create creates a namespace as soon as there is none of its name.
func (t *Traffic) create(ctx context.Context, clients []kubernetes.Interface, created *corev1.Namespace) *corev1.Namespace {
	for t.limiter.Wait(ctx) == nil {
		namespace, err := clients[t.pick(len(clients))].CoreV1().Namespaces().Create(ctx, created, metav1.CreateOptions{})
		if err == nil {
			return namespace
		}
		if !t.sleep(ctx, 100*time.Millisecond, 500*time.Millisecond) {
			return nil
		}
	}
	return nil
}

// use writes into a namespace, from two clients at a time, until it is deleted.
func (t *Traffic) use(ctx context.Context, clients []kubernetes.Interface, tenant string, namespace *corev1.Namespace) {
	fate := t.fate()
	ctx, cancel := context.WithCancel(history.WithNamespace(ctx, namespace.UID))
	defer cancel()
	var writers sync.WaitGroup
	defer writers.Wait()
	defer cancel()
	open, gone := make(chan struct{}), make(chan struct{})
	var sawOpen, sawGone sync.Once
	for range 2 {
		writers.Go(func() {
			for i := 0; t.limiter.Wait(ctx) == nil; i++ {
				err := t.write(ctx, clients[t.pick(len(clients))], tenant, namespace.Name)
				if missing(err) {
					sawGone.Do(func() { close(gone) })
				}
				if err == nil {
					sawOpen.Do(func() { close(open) })
					_ = t.startWork(ctx, clients[t.pick(len(clients))], map[string]string{history.AnnotationTenant: tenant}, namespace.Name)
					if !t.sleep(ctx, 500*time.Millisecond, time.Second) {
						return
					}
				}
			}
		})
	}
	if fate.afterCreation == 0 {
		select {
		case <-ctx.Done():
			return
		case <-gone: // its initialization failed
			return
		case <-open:
		}
	}
	if !t.sleep(ctx, 0, fate.afterCreation+fate.afterOpening+1) {
		return
	}
	for ctx.Err() == nil {
		uid := namespace.UID
		err := clients[t.pick(len(clients))].CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			break
		}
		if !t.sleep(ctx, 100*time.Millisecond, 500*time.Millisecond) {
			return
		}
	}
	// A client that has not noticed the deletion continues to write for a while.
	t.sleep(ctx, 0, time.Second)
}

// missing reports whether a write failed because there is no namespace.
func missing(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// write makes one of the writes by which a tenant may be too early.
func (t *Traffic) write(ctx context.Context, client kubernetes.Interface, tenant, namespace string) error {
	mark := map[string]string{history.AnnotationTenant: tenant}
	if t.chance(0.1) {
		return t.startWork(ctx, client, mark, namespace)
	}
	switch t.pick(8) {
	case 0:
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, history.AnnotationTenant, tenant)
		_, err := client.CoreV1().ServiceAccounts(namespace).Patch(ctx, "default", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	case 1:
		return client.CoreV1().ConfigMaps(namespace).Delete(ctx, "kube-root-ca.crt", metav1.DeleteOptions{})
	case 2, 3, 4:
		_, err := client.CoreV1().ConfigMaps(namespace).Apply(ctx, applycorev1.ConfigMap("applied", namespace).WithAnnotations(mark).
			WithData(map[string]string{"at": time.Now().String()}), metav1.ApplyOptions{FieldManager: tenant, Force: true})
		return err
	}
	_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Annotations: mark}}, metav1.CreateOptions{})
	return err
}

// followNamespaces is a tenant's controller: it writes into each namespace at the moment in which it sees it.
func (t *Traffic) followNamespaces(ctx context.Context, server int) {
	tenant := fmt.Sprintf("controller-%d", server)
	clients, err := t.tenant(tenant)
	if err != nil {
		return
	}
	client := clients[server]
	for ctx.Err() == nil {
		watching, cancel := context.WithTimeout(ctx, requestTimeout)
		events, err := client.CoreV1().Namespaces().Watch(watching, metav1.ListOptions{})
		if err == nil {
			t.react(watching, client, tenant, events)
		}
		cancel()
		t.sleep(ctx, 50*time.Millisecond, 200*time.Millisecond)
	}
}

func (t *Traffic) react(ctx context.Context, client kubernetes.Interface, tenant string, events watch.Interface) {
	defer events.Stop()
	for event := range events.ResultChan() {
		namespace, ok := event.Object.(*corev1.Namespace)
		if !ok || !strings.HasPrefix(namespace.Name, t.options.Prefix) || event.Type == watch.Deleted || !t.limiter.Allow() {
			continue
		}
		_ = t.write(history.WithNamespace(ctx, namespace.UID), client, tenant, namespace.Name)
	}
}

// withoutRetryAfter keeps client-go from sending a request again by itself.
func withoutRetryAfter(next http.RoundTripper) http.RoundTripper { return noRetry{next} }

type noRetry struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n noRetry) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.next.RoundTrip(request)
	if response != nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// Names returns the namespaces whose names begin with a prefix.
func Names(ctx context.Context, core kubernetes.Interface, prefix string) ([]string, error) {
	list, err := core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, namespace := range list.Items {
		if strings.HasPrefix(namespace.Name, prefix) {
			names = append(names, namespace.Name)
		}
	}
	return names, nil
}

// Unsettled returns the namespaces whose names begin with a prefix and that are neither open and Ready nor
// gone, the pods and Jobs in such namespaces that do not run, and the population if it has not reached every namespace.
func Unsettled(ctx context.Context, core kubernetes.Interface, nsinit versioned.Interface, prefix string) ([]string, error) {
	list, err := core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names, err := idle(ctx, core, prefix)
	if err != nil {
		return nil, err
	}
	switch done, err := rolledOut(ctx, core, nsinit); {
	case err != nil:
		return nil, err
	case !done:
		names = append(names, populationName)
	}
	for _, namespace := range list.Items {
		_, closed := namespace.Labels[v1alpha1.LabelInitializing]
		if strings.HasPrefix(namespace.Name, prefix) && (closed || namespace.DeletionTimestamp != nil || !ready(&namespace)) {
			names = append(names, namespace.Name)
		}
	}
	return names, nil
}

func ready(namespace *corev1.Namespace) bool {
	for _, condition := range namespace.Status.Conditions {
		if condition.Type == v1alpha1.ConditionReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
