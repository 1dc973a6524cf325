/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// audited calls a function for each write that kube-apiserver has answered.
func (s *story) audited(f func(auditv1.Event)) error {
	file, err := os.Open(s.path("audit.log"))
	if err != nil {
		return err
	}
	defer file.Close()
	for decoder := json.NewDecoder(file); ; {
		var event auditv1.Event
		switch err := decoder.Decode(&event); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("cannot read the audit log: %w", err)
		case event.Stage == auditv1.StageResponseComplete && event.ObjectRef != nil && event.ResponseStatus != nil:
			f(event)
		}
	}
}

// before checks in the audit log that kube-apiserver created the objects of the initializers before it
// answered the first write of alice.
func (s *story) before(context.Context) (string, error) {
	var first time.Time
	made := map[string]time.Time{}
	err := s.audited(func(event auditv1.Event) {
		object := event.ObjectRef.Resource + "/" + event.ObjectRef.Name
		switch {
		case event.ObjectRef.Namespace != demoNamespace || event.ObjectRef.Resource == "namespaces" || event.ResponseStatus.Code >= 300:
		case event.User.Username == "alice":
			if first.IsZero() {
				first = event.StageTimestamp.Time
			}
		case made[object].IsZero():
			made[object] = event.StageTimestamp.Time
		}
	})
	if err != nil {
		return "", err
	}
	if first.IsZero() {
		return "", errors.New("the audit log shows no write of alice")
	}
	var evidence []string
	for _, object := range populatedObjects() {
		at, found := made[object]
		if !found || !at.Before(first) {
			return "", fmt.Errorf("%s was written at %s, alice's first object at %s", object, at, first)
		}
		evidence = append(evidence, fmt.Sprintf("%-30s %.2f s before alice's first object", object, first.Sub(at).Seconds()))
	}
	return strings.Join(evidence, "\n"), nil
}

// controllersAllowed checks the answers of kube-apiserver, and the log of kube-controller-manager.
func (s *story) controllersAllowed(context.Context) (string, error) {
	controllers, refusals := map[string]bool{}, 0
	var refused []string
	err := s.audited(func(event auditv1.Event) {
		user := event.User.Username
		if event.ObjectRef.Namespace == demoNamespace && strings.HasPrefix(user, "system:serviceaccount:kube-system:") && event.ResponseStatus.Code < 300 {
			controllers[strings.TrimPrefix(user, "system:serviceaccount:kube-system:")] = true
		}
		if !strings.Contains(event.ResponseStatus.Message, "nsinit-gate") {
			return
		}
		refusals++
		if strings.HasPrefix(user, "system:") {
			refused = append(refused, fmt.Sprintf("%s: %s", user, event.ResponseStatus.Message))
		}
	})
	if err != nil {
		return "", err
	}
	if len(refused) > 0 {
		return "", fmt.Errorf("the gate refused controllers:\n%s", strings.Join(refused, "\n"))
	}
	for _, name := range []string{"root-ca-cert-publisher", "service-account-controller"} {
		if !controllers[name] || refusals == 0 {
			return "", fmt.Errorf("the audit log must show a write of %s, and a refusal of alice: it shows %d refusals", name, refusals)
		}
	}
	log, err := os.ReadFile(s.Process("kube-controller-manager").LogFile())
	if err != nil {
		return "", err
	}
	if strings.Contains(string(log), "nsinit-gate") {
		return "", errors.New("the log of kube-controller-manager mentions a refusal by the gate")
	}
	return fmt.Sprintf("these controllers wrote into the namespace: %s\nthe %d refusals in the audit log are of other users, and the log of kube-controller-manager shows none",
		strings.Join(slices.Sorted(maps.Keys(controllers)), ", "), refusals), nil
}
