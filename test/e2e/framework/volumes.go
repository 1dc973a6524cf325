/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package framework

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volume returns the folder of a volume. That of a PersistentVolumeClaim stays when the pod is deleted.
func (p *Pod) volume(name string) string {
	for _, volume := range p.Object.Spec.Volumes {
		if volume.Name == name && volume.PersistentVolumeClaim != nil {
			return filepath.Join(p.node.Dir, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return filepath.Join(p.Dir, name)
}

// mount creates the folder of each volume, with the content of its Secret. A later call updates the content.
func (p *Pod) mount(ctx context.Context, first bool) error {
	for _, volume := range p.Object.Spec.Volumes {
		dir := p.volume(volume.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		source := volume.Secret
		if source == nil {
			continue
		}
		secret, err := p.node.c.Core.CoreV1().Secrets(p.Object.Namespace).Get(ctx, source.SecretName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && (!first || source.Optional != nil && *source.Optional):
			continue
		case err != nil:
			return err
		}
		if err := project(dir, secret, source.Items); err != nil {
			return err
		}
	}
	return nil
}

// project writes the keys of a Secret into a folder, if the Secret has changed.
func project(dir string, secret *corev1.Secret, items []corev1.KeyToPath) error {
	if len(items) == 0 {
		for key := range secret.Data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	version := filepath.Join(dir, ".version")
	if last, _ := os.ReadFile(version); string(last) == secret.ResourceVersion {
		return nil
	}
	for _, item := range items {
		data, found := secret.Data[item.Key]
		if !found {
			return errors.New("references non-existent secret key: " + item.Key)
		}
		if err := os.WriteFile(filepath.Join(dir, "."+item.Path), data, 0o600); err != nil {
			return err
		}
	}
	for _, item := range items {
		if err := os.Rename(filepath.Join(dir, "."+item.Path), filepath.Join(dir, item.Path)); err != nil {
			return err
		}
	}
	return os.WriteFile(version, []byte(secret.ResourceVersion), 0o600)
}
