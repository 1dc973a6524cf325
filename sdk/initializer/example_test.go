/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package initializer_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
)

// An initializer that puts a ConfigMap into every new namespace.
func Example() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	core := kubernetes.NewForConfigOrDie(config)
	greet := func(ctx context.Context, namespace *corev1.Namespace) error {
		// Applied, so that a second call for the same namespace does no harm.
		greeting := applycorev1.ConfigMap("greeting", namespace.Name).
			WithData(map[string]string{"text": "welcome to " + namespace.Name})
		_, err := core.CoreV1().ConfigMaps(namespace.Name).Apply(ctx, greeting, metav1.ApplyOptions{FieldManager: "greeting"})
		return err
	}
	runner, err := initializer.New(initializer.Options{
		Name:       "greeting.example.com",
		Initialize: greet,
		Core:       core,
		Nsinit:     versioned.NewForConfigOrDie(config),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runner.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A participant that makes something outside of the cluster, and takes it away again.
func Example_finalize() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	runner, err := initializer.New(initializer.Options{
		Name:         "log-index.example.com",
		Registration: &initializer.Registration{Configuration: "20-log-index"},
		Core:         kubernetes.NewForConfigOrDie(config),
		Nsinit:       versioned.NewForConfigOrDie(config),
		Initialize: func(ctx context.Context, namespace *corev1.Namespace) error {
			// The same key in each call for this namespace, however often it is tried.
			return createIndex(ctx, namespace.Name, initializer.IdempotencyKey(ctx))
		},
		Finalize: func(ctx context.Context, namespace *corev1.Namespace) error {
			if initializer.NeverInitialized(ctx) {
				return nil // there is none
			}
			return deleteIndex(ctx, namespace.Name)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := runner.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// An initializer that scans the images of each pod before the pod runs. The SDK does not register it:
// artifacts/examples/scan-before-run.yaml does.
func Example_scanBeforeRun() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	runner, err := initializer.New(initializer.Options{
		Name:   "scan.example.com",
		Core:   kubernetes.NewForConfigOrDie(config),
		Nsinit: versioned.NewForConfigOrDie(config),
		InitializeObject: func(ctx context.Context, object initializer.Object) error {
			pod, ok := object.(*corev1.Pod)
			if !ok {
				return nil
			}
			for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				if err := scanImage(ctx, container.Image); err != nil {
					return err // the pod waits, and the SDK calls the function again after a delay
				}
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := runner.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// scanImage stands for the author's own code.
func scanImage(context.Context, string) error { return nil }

// createIndex stands for the author's own code.
func createIndex(context.Context, string, string) error { return nil }

// deleteIndex stands for the author's own code.
func deleteIndex(context.Context, string) error { return nil }
