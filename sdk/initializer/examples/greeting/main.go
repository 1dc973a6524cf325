/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command greeting is an initializer that puts a ConfigMap into every new namespace.
package main

import (
	"context"
	"log"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nsinit/nsinit/sdk/generated/clientset/versioned"
	"github.com/nsinit/nsinit/sdk/initializer"
)

func main() {
	// Without KUBECONFIG, the service account of the pod.
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	core := kubernetes.NewForConfigOrDie(config)
	runner, err := initializer.New(initializer.Options{
		Name:         "greeting.example.com",
		Registration: &initializer.Registration{Configuration: "50-greeting"},
		Core:         core,
		Nsinit:       versioned.NewForConfigOrDie(config),
		Initialize: func(ctx context.Context, namespace *corev1.Namespace) error {
			// Applied, so that a second call for the same namespace does no harm.
			greeting := applycorev1.ConfigMap("greeting", namespace.Name).WithData(map[string]string{"text": "welcome to " + namespace.Name})
			_, err := core.CoreV1().ConfigMaps(namespace.Name).Apply(ctx, greeting, metav1.ApplyOptions{FieldManager: "greeting"})
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := runner.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
