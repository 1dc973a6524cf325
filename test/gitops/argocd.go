/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// healthKey begins the keys of argocd-cm that contain health checks.
const healthKey = "resource.customizations.health."

// healthChecks are the health checks of Argo CD, in Lua.
type healthChecks map[schema.GroupKind]string

// readHealthChecks reads the health checks in the ConfigMap argocd-cm.
func readHealthChecks(file string) (healthChecks, error) {
	var config corev1.ConfigMap
	if err := readFile(file, &config); err != nil {
		return nil, err
	}
	checks := healthChecks{}
	for key, script := range config.Data {
		if name, ok := strings.CutPrefix(key, healthKey); ok {
			group, kind, grouped := strings.Cut(name, "_")
			if !grouped {
				group, kind = "", name
			}
			checks[schema.GroupKind{Group: group, Kind: kind}] = script
		}
	}
	return checks, nil
}

// health is the result of a health check.
type health struct {
	status, message string
}

// run returns the health of an object. As in Argo CD, an object that is being deleted is Progressing, whatever its health check
// returns. The sandbox of the health check has less than that of Argo CD.
func (c healthChecks) run(object *unstructured.Unstructured) (health, error) {
	script, ok := c[object.GroupVersionKind().GroupKind()]
	if !ok {
		return health{}, fmt.Errorf("argocd-cm has no health check for %s", object.GroupVersionKind().GroupKind())
	}
	if object.GetDeletionTimestamp() != nil {
		return health{"Progressing", "Pending deletion"}, nil
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	if err := state.CallByParam(lua.P{Fn: state.NewFunction(lua.OpenBase), Protect: true}, lua.LString(lua.BaseLibName)); err != nil {
		return health{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // as in Argo CD
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", toLua(state, object.Object))
	if err := state.DoString(script); err != nil {
		return health{}, fmt.Errorf("the health check failed: %w", err)
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return health{}, fmt.Errorf("the health check returned %s, want a table", state.Get(-1).Type())
	}
	result := health{lua.LVAsString(table.RawGetString("status")), lua.LVAsString(table.RawGetString("message"))}
	switch result.status {
	case "Healthy", "Progressing", "Degraded", "Suspended", "Missing":
		return result, nil
	}
	return health{}, fmt.Errorf("the health check returned the status %q, which Argo CD does not know", result.status)
}

// toLua converts a value of JSON.
func toLua(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		table := state.CreateTable(len(v), 0)
		for _, item := range v {
			table.Append(toLua(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(v))
		for key, item := range v {
			table.RawSetString(key, toLua(state, item))
		}
		return table
	}
	return lua.LNil
}
