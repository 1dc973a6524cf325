/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/apis/nsinit/v1alpha1"
	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	typed "github.com/nsinit/nsinit/sdk/generated/clientset/versioned/typed/nsinit/v1alpha1"
)

const (
	// perUser is how many namespaces each user may get.
	perUser = 10
	// viewers is the ClusterRole that lets every user list AccessibleNamespaces.
	viewers = "nsinit:tenant"
	// bound is the RoleBinding of a user in a namespace.
	bound = "view"
	// accessClients is how many requests prepare the control plane at the same time.
	accessClients = 16
)

// accessCommand adds the flags of the command, and returns what it does.
func accessCommand(ctx context.Context, flags *flag.FlagSet) func() error {
	planes, sizes := "", []int{100, 1000, 10000}
	planesFlag(flags, &planes)
	flags.Func("sizes", "the numbers of namespaces, separated by commas, in order (default 100,1000,10000)", func(text string) error {
		sizes = nil
		return json.Unmarshal([]byte("["+text+"]"), &sizes)
	})
	return func() error { return measureAccess(ctx, planes, sizes) }
}

// measureAccess measures the tenants' view: lists, watches and what they cost, with growing numbers of namespaces and users.
func measureAccess(ctx context.Context, planes string, sizes []int) (err error) {
	p, err := startPlaneAt(ctx, filepath.Join(planes, "access"), true, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop(ctx)) }()
	if _, err := p.core.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "viewers"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewers},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	fmt.Println("| namespaces | users | first list: p50, p99, max, ms | list again: p50, p99, max, ms | a right shows in a watch: p50, p99, max, ms | " +
		"nsinit-apiserver, MiB, without and with a watch of each user | a namespace opens: p50, p99, max, ms, without and with the watches |\n| --- | --- | --- | --- | --- | --- | --- |")
	made := 0
	for _, size := range sizes {
		fmt.Fprintf(os.Stderr, "creating %d namespaces\n", size-made)
		if _, err := repeat(size-made, accessClients, func(i int) error { return p.createBound(ctx, made+i) }); err != nil {
			return err
		}
		made = size
		if err := p.waitOpen(ctx); err != nil {
			return err
		}
		if _, err := p.idle(ctx, time.Second); err != nil { // the programs handle the creations for some time
			return err
		}
		if err := p.accessRow(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

// waitOpen waits until nsinit-apiserver shows no namespace that is being initialized.
func (p *plane) waitOpen(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, time.Second, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		closed, err := p.nsinit.NsinitV1alpha1().AccessibleNamespaces().List(ctx, metav1.ListOptions{FieldSelector: "status.phase=" + string(v1alpha1.LifecycleInitializing)})
		return err == nil && len(closed.Items) == 0, nil
	})
}

// createBound creates a namespace that one user may get.
func (p *plane) createBound(ctx context.Context, i int) error {
	name := fmt.Sprintf("access-%d", i)
	if err := p.createNamespace(ctx, name); err != nil {
		return err
	}
	return p.bindUser(ctx, name, bound, i/perUser)
}

// bindUser lets a user get a namespace. The administrator may write into it before it opens.
func (p *plane) bindUser(ctx context.Context, namespace, name string, user int) error {
	_, err := p.core.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userName(user)}}}, metav1.CreateOptions{})
	return err
}

func userName(user int) string { return fmt.Sprintf("perf-user-%d", user) }

// view returns the client of a user.
func (p *plane) view(user int) (typed.AccessibleNamespaceInterface, error) {
	config := rest.CopyConfig(p.admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: userName(user)}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.NsinitV1alpha1().AccessibleNamespaces(), nil
}

// accessRow measures with a number of namespaces.
func (p *plane) accessRow(ctx context.Context, namespaces int) error {
	users := namespaces / perUser
	views := make([]typed.AccessibleNamespaceInterface, users)
	for user := range views {
		var err error
		if views[user], err = p.view(user); err != nil {
			return err
		}
	}
	var first, second []float64
	for _, v := range views[:min(users, 200)] {
		for _, times := range []*[]float64{&first, &second} {
			began := time.Now()
			list, err := v.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if *times = append(*times, time.Since(began).Seconds()); len(list.Items) != perUser {
				return fmt.Errorf("a user sees %d namespaces", len(list.Items))
			}
		}
	}
	without, err := p.bursts(ctx, fmt.Sprintf("alone-%d", namespaces))
	if err != nil {
		return err
	}
	before, err := p.memory()
	if err != nil {
		return err
	}
	watching, end := context.WithCancel(ctx)
	defer end()
	events, err := openWatches(watching, views)
	if err != nil {
		return err
	}
	shown, err := p.grantTimes(ctx, events, users)
	if err != nil {
		return err
	}
	with, err := p.bursts(ctx, fmt.Sprintf("watched-%d", namespaces))
	if err != nil {
		return err
	}
	after, err := p.memory()
	if err != nil {
		return err
	}
	end()
	again, err := p.bursts(ctx, fmt.Sprintf("again-%d", namespaces))
	if err != nil {
		return err
	}
	without = append(without, again...)
	print := func(times []float64) string {
		q := quantiles(times)
		return fmt.Sprintf("%.0f, %.0f, %.0f", q[0], q[1], q[2])
	}
	fmt.Printf("| %d | %d | %s | %s | %s | %.0f, %.0f | %s, %s |\n", namespaces, users, print(first), print(second), print(shown),
		before["nsinit-apiserver"]/(1<<20), after["nsinit-apiserver"]/(1<<20), print(without), print(with))
	return nil
}

// bursts creates 60 namespaces, one after the other, five times, and returns how long each took until it was open.
func (p *plane) bursts(ctx context.Context, prefix string) (times []float64, err error) {
	for i := range 5 {
		some, _, err := p.burst(ctx, fmt.Sprintf("%s-%d", prefix, i), 60, 1, readySigns())
		if err != nil {
			return nil, err
		}
		times = append(times, some...)
	}
	return times, nil
}

// openWatches opens a watch for each user, and returns the channels of what they show after what exists.
func openWatches(ctx context.Context, views []typed.AccessibleNamespaceInterface) ([]<-chan watch.Event, error) {
	events := make([]<-chan watch.Event, len(views))
	_, err := repeat(len(views), accessClients, func(user int) error {
		list, err := views[user].List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		w, err := views[user].Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err == nil {
			events[user] = w.ResultChan()
		}
		return err
	})
	return events, err
}

// grantTimes returns how long it takes until a watch shows that a user may get another namespace.
func (p *plane) grantTimes(ctx context.Context, events []<-chan watch.Event, users int) (times []float64, err error) {
	var mu sync.Mutex
	const grants, atOnce = 100, 4
	_, err = repeat(min(users, grants), atOnce, func(user int) error {
		namespace, name := fmt.Sprintf("access-%d", (user+1)*perUser%(users*perUser)), fmt.Sprintf("more-%d-%d", users, user)
		began := time.Now()
		if err := p.bindUser(ctx, namespace, name, user); err != nil {
			return err
		}
		select {
		case event := <-events[user]:
			if event.Type != watch.Added {
				return fmt.Errorf("a watch shows %s", event.Type)
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
			return errors.New("a watch shows nothing for a minute")
		}
		mu.Lock()
		times = append(times, time.Since(began).Seconds())
		mu.Unlock()
		return p.core.RbacV1().RoleBindings(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	return times, err
}
