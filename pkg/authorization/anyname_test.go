/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package authorization

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestAnyName: a permission on every name is asked for first, and only an answer that allows it decides.
func TestAnyName(t *testing.T) {
	resource := func(name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: "get", Resource: "namespacelifecycles", Name: name, ResourceRequest: true}
	}
	for name, test := range map[string]struct {
		request authorizer.AttributesRecord
		allowed string // the name that is allowed
		failed  string // the name for which there is an error
		want    authorizer.Decision
		asked   []string
		err     bool
	}{
		"every name":                         {resource("shop"), "", "-", authorizer.DecisionAllow, []string{""}, false},
		"this name only":                     {resource("shop"), "shop", "-", authorizer.DecisionAllow, []string{"", "shop"}, false},
		"another name":                       {resource("shop"), "depot", "-", authorizer.DecisionNoOpinion, []string{"", "shop"}, false},
		"no answer for every name":           {resource("shop"), "shop", "", authorizer.DecisionAllow, []string{"", "shop"}, false},
		"no answer for this name":            {resource("shop"), "depot", "shop", authorizer.DecisionNoOpinion, []string{"", "shop"}, true},
		"a list":                             {resource(""), "", "-", authorizer.DecisionAllow, []string{""}, false},
		"a path, whose name has no meaning ": {authorizer.AttributesRecord{Path: "/metrics", Name: "x"}, "", "-", authorizer.DecisionNoOpinion, []string{"x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			decision, _, err := AnyName(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				asked = append(asked, a.GetName())
				switch a.GetName() {
				case test.failed:
					return authorizer.DecisionNoOpinion, "", errors.New("down")
				case test.allowed:
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})).Authorize(t.Context(), test.request)
			if decision != test.want || (err != nil) != test.err || !slices.Equal(asked, test.asked) {
				t.Errorf("decided %v, %v after asking %q; want %v after %q", decision, err, asked, test.want, test.asked)
			}
		})
	}
}
