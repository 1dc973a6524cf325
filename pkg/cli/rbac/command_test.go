/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package rbac_test

import (
	"strings"
	"testing"

	"github.com/nsinit/nsinit/pkg/cli/cmdtesting"
	"github.com/nsinit/nsinit/pkg/cli/rbac"
)

func TestRBAC(t *testing.T) {
	const initializer = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: a.example.com:hooks:hook
rules:
- apiGroups:
  - nsinit.dev
  resourceNames:
  - a.example.com
  resources:
  - initializers
  verbs:
  - initialize
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: a.example.com:hooks:hook
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: a.example.com:hooks:hook
subjects:
- kind: ServiceAccount
  name: hook
  namespace: hooks
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: a.example.com-initializer:hooks:hook
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: nsinit:initializer
subjects:
- kind: ServiceAccount
  name: hook
  namespace: hooks
`
	const viewer = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: nsinit:view:team-jane-9f5e5caa
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: nsinit:view
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: team/jane
`
	const (
		confined  = "jsonpath={.spec.matchConditions[*].expression}{.spec.variables[*].expression}{.spec.validations[*].expression}{.spec.validations[*].messageExpression}{.spec.policyName}"
		variables = `request.resource.resource + (request.resource.group == "" ? "" : "." + request.resource.group)` +
			` namespaceObject != null && (namespaceObject.metadata.?labels["nsinit.dev/initializing"].hasValue() || has(namespaceObject.metadata.deletionTimestamp))`
		refuses = `: policy nsinit-confine-a.example.com-system-serviceaccount-hooks-hook-ee4d8794 refuses " + variables.resource + (request.?namespace.orValue("") == "" ? "" : " in namespace \"" + request.namespace + "\"")nsinit-confine-a.example.com-system-serviceaccount-hooks-hook-ee4d8794`
	)
	long := strings.Repeat("a.", 113) + "bb." + strings.Repeat("c", 24) // the longest that is valid
	sdk := func(namespace string) string {
		return `variables.resource in ["events", "events.events.k8s.io"] || variables.resource == "leases.coordination.k8s.io" && request.?namespace.orValue("") == "` + namespace + `"`
	}
	for name, test := range map[string]cmdtesting.Test{
		"an initializer": {Args: []string{"a.example.com", "--service-account=hooks:hook"}, Out: initializer},
		"a viewer":       {Args: []string{"--view", "--user=team/jane"}, Out: viewer},
		"a service account that views": {Args: []string{"--view", "--service-account=hooks:hook", "-o", "name"},
			Out: "clusterrolebinding.rbac.authorization.k8s.io/nsinit:view:hooks:hook\n"},
		"names": {Args: []string{"a.example.com", "--user=jane", "-o", "name"}, Out: "clusterrole.rbac.authorization.k8s.io/a.example.com:jane\n" +
			"clusterrolebinding.rbac.authorization.k8s.io/a.example.com:jane\nclusterrolebinding.rbac.authorization.k8s.io/a.example.com-initializer:jane\n"},
		"a user whose name looks like a service account": {Args: []string{"--view", "--user=hooks:hook", "-o", "name"},
			Out: "clusterrolebinding.rbac.authorization.k8s.io/nsinit:view:hooks:hook-eb7330a5\n"},
		"a user whose name looks like another user": {Args: []string{"--view", "--user=team-jane", "-o", "name"},
			Out: "clusterrolebinding.rbac.authorization.k8s.io/nsinit:view:team-jane\n"},
		"an initializer of pods and Jobs": {Args: []string{"a.example.com", "--user=jane", "--objects", "--output=jsonpath={.metadata.name} {.roleRef.name}{.rules[*].resourceNames}{'\\n'}"},
			Out: "a.example.com-objects:jane [\"a.example.com\"]\na.example.com-objects:jane a.example.com-objects:jane\na.example.com-objects-initializer:jane nsinit:object-initializer\n"},
		"an initializer with a slash": {Args: []string{"openshift.com/My_.Origin", "--user=jane", "--confine-to=configmaps", "--output=jsonpath={.metadata.name} {.roleRef.name}{.rules[*].resourceNames}{.spec.policyName}{'\\n'}"},
			Out: `nsinit-confine-openshift.com-my--origin-jane-ee36ddd7 ` + `
nsinit-confine-openshift.com-my--origin-jane-ee36ddd7 nsinit-confine-openshift.com-my--origin-jane-ee36ddd7
openshift.com-my--origin-069f5cff:jane ["openshift.com/My_.Origin"]
openshift.com-my--origin-069f5cff:jane openshift.com-my--origin-069f5cff:jane
openshift.com-my--origin-069f5cff-initializer:jane nsinit:initializer
`},
		"another initializer with a similar name": {Args: []string{"openshift.com/my--origin", "--user=jane", "--confine-to=configmaps", "-o", "jsonpath={.spec.policyName}"},
			Out: "nsinit-confine-openshift.com-my--origin-jane-3c63aeaf"},
		"a long name": {Args: []string{long, "--user=jane", "--confine-to=configmaps", "-o", "jsonpath={.spec.policyName}"},
			Out: "nsinit-confine-" + long[:228] + "-0469ffec"},
		"a finalizer": {Args: []string{"a.example.com", "--user=jane", "--finalizer", "--output=jsonpath={.rules[*].verbs}{.subjects[*].kind}{'\\n'}"},
			Out: "[\"initialize\",\"finalize\"]\nUser\nUser\n"},
		"one that is confined": {Args: []string{"a.example.com", "--service-account=hooks:hook", "--confine-to=configmaps,roles.rbac.authorization.k8s.io", "-o", confined},
			Out: `request.userInfo.username == "system:serviceaccount:hooks:hook"` + variables + sdk("hooks") + ` || variables.initializes && variables.resource in ["configmaps", "roles.rbac.authorization.k8s.io"]` +
				`"initializer a.example.com may write only in namespaces that are initializing or terminating, and only configmaps, roles.rbac.authorization.k8s.io` + refuses},
		"one that is confined and can make tokens": {Args: []string{"a.example.com", "--user=jane", "--confine-to=serviceaccounts,secrets.example.com", "-o", "jsonpath={.spec.policyName}"},
			Out: "nsinit-confine-a.example.com-jane-26ec45fb",
			ErrOut: "Warning: with serviceaccounts, the initializer can make tokens of service accounts while a namespace is initializing; " +
				"they work after it opens, and the policy does not limit them\n"},
		"one that registers itself and is confined": {Args: []string{"a.example.com", "--user=jane", "--configuration=20-a", "--confine-to=configmaps", "-o", "jsonpath={.spec.validations[*].expression}"},
			Out: sdk("") + ` || variables.initializes && variables.resource in ["configmaps"] || variables.resource == "namespaceinitializerconfigurations.nsinit.dev" && request.?name.orValue("") == "20-a"`},
		"a service account as a user, confined to nothing": {Args: []string{"a.example.com", "--user=system:serviceaccount:hooks:hook", "--confine-to=", "-o", confined},
			Out: `request.userInfo.username == "system:serviceaccount:hooks:hook"` + variables + sdk("hooks") + ` || variables.initializes && variables.resource in []"initializer a.example.com may write no resources` + refuses},
		"no group":    {Args: []string{"a.example.com", "--user=jane", "--confine-to=roles.A_B"}, Err: "give RESOURCE or RESOURCE.GROUP"},
		"no resource": {Args: []string{"a.example.com", "--user=jane", "--confine-to=Config Maps"}, Err: "--confine-to=Config Maps: give RESOURCE or RESOURCE.GROUP, such as configmaps"},
		"one that registers itself": {Args: []string{"a.example.com", "--user=jane", "--configuration=20-a", "--output=jsonpath={.rules[*].resources}{.rules[*].resourceNames}{.rules[*].verbs}"},
			Out: `["initializers"] ["namespaceinitializerconfigurations"] ["namespaceinitializerconfigurations"]["a.example.com"] ["20-a"]["initialize"] ["create"] ["get","update"]`},

		"no subject":                {Args: []string{"a.example.com"}, Err: "give one of --service-account=NAMESPACE:NAME and --user=NAME"},
		"two":                       {Args: []string{"a.example.com", "--user=jane", "--service-account=hooks:hook"}, Err: "give one of --service-account=NAMESPACE:NAME and --user=NAME"},
		"no namespace":              {Args: []string{"a.example.com", "--service-account=hook"}, Err: "--service-account=hook: give NAMESPACE:NAME"},
		"not a name":                {Args: []string{"one", "--user=jane"}, Err: `initializer "one": `},
		"no initializer":            {Args: []string{"--user=jane"}, Err: "the argument INITIALIZER is missing; for example:"},
		"an initializer that views": {Args: []string{"a.example.com", "--view", "--user=jane"}, Err: `unexpected argument "a.example.com": --view is for no initializer`},
		"a finalizer that views":    {Args: []string{"--view", "--finalizer", "--user=jane"}, Err: "[view finalizer]"},
		"no such format":            {Args: []string{"--view", "--user=jane", "-o", "xml"}, Err: `output format "xml", allowed formats are:`},
	} {
		t.Run(name, func(t *testing.T) { test.Check(t, rbac.NewCommand) })
	}
}
