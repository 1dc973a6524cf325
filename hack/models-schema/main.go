/*
Copyright The nsinit Authors.

SPDX-License-Identifier: Apache-2.0
*/

// Command models-schema prints the generated OpenAPI definitions as one OpenAPI v2
// document, which the generator of apply configurations reads.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/nsinit/nsinit/sdk/generated/openapi"
)

func main() {
	definitions := spec.Definitions{}
	for name, definition := range openapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + name)
	}) {
		definitions[name] = asV2(definition)
	}
	document := spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "nsinit", Version: "unversioned"}},
		Definitions: definitions,
	}}
	if err := json.NewEncoder(os.Stdout).Encode(&document); err != nil {
		fmt.Fprintf(os.Stderr, "cannot print the schema: %v\n", err)
		os.Exit(1)
	}
}

// asV2 returns the OpenAPI v2 schema of a definition if it has one.
func asV2(definition common.OpenAPIDefinition) spec.Schema {
	if v2, ok := definition.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
		return v2
	}
	return definition.Schema
}
