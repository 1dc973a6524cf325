/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// auditEvent is what the demo reads of an event of the audit log.
type auditEvent struct {
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Stage          string    `json:"stage"`
	StageTimestamp time.Time `json:"stageTimestamp"`
}

// audited calls a function for each write that kube-apiserver has answered.
func (s *story) audited(f func(auditEvent)) error {
	file, err := os.Open(s.path("audit.log"))
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return fmt.Errorf("the audit log cannot be read: %w", err)
		}
		if event.Stage == "ResponseComplete" {
			f(event)
		}
	}
	return lines.Err()
}

// before compares when kube-apiserver answered: the first write of alice comes after the
// creation of all that the initializers made.
func (s *story) before(context.Context) (string, error) {
	var first time.Time
	made := map[string]time.Time{}
	err := s.audited(func(event auditEvent) {
		object := event.ObjectRef.Resource + "/" + event.ObjectRef.Name
		switch {
		case event.ObjectRef.Namespace != demoNamespace || event.ObjectRef.Resource == "namespaces" || event.ResponseStatus.Code >= 300:
		case event.User.Username == "alice":
			if first.IsZero() {
				first = event.StageTimestamp
			}
		case made[object].IsZero():
			made[object] = event.StageTimestamp
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

// nobodyRefused reads both sides: what kube-apiserver answered, and what
// kube-controller-manager logged.
func (s *story) nobodyRefused(context.Context) (string, error) {
	controllers, refusals := map[string]bool{}, 0
	var refused []string
	err := s.audited(func(event auditEvent) {
		user := event.User.Username
		system := strings.HasPrefix(user, "system:")
		if event.ObjectRef.Namespace == demoNamespace && strings.HasPrefix(user, "system:serviceaccount:kube-system:") && event.ResponseStatus.Code < 300 {
			controllers[strings.TrimPrefix(user, "system:serviceaccount:kube-system:")] = true
		}
		if !strings.Contains(event.ResponseStatus.Message, "nsinit-gate") {
			return
		}
		refusals++
		if system {
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
			return "", fmt.Errorf("the audit log shows no write of %s, or none of the %d refusals of alice: it proves nothing", name, refusals)
		}
	}
	log, err := os.ReadFile(s.Process("kube-controller-manager").LogFile())
	if err != nil {
		return "", err
	}
	if strings.Contains(string(log), "nsinit-gate") {
		return "", errors.New("the log of kube-controller-manager mentions a refusal by the gate")
	}
	return fmt.Sprintf("in the namespace wrote: %s\nnone of the %d refusals in the audit log, and none in the log of kube-controller-manager, is a controller's",
		strings.Join(slices.Sorted(maps.Keys(controllers)), ", "), refusals), nil
}
