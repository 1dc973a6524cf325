{{- define "gvList" -}}
# API

<!-- Written by crd-ref-docs from the comments in sdk/apis: change them there and run make generate. -->

This page describes the kinds of nsinit.dev/v1alpha1 and the types of their fields. `kubectl explain KIND.FIELD` shows the same texts. Each
object also has `apiVersion: nsinit.dev/v1alpha1` and its `kind`.

## Kinds
{{ range . }}{{ range .SortedTypes }}{{ $kind := false }}{{ range .Members }}{{ if eq .Name "metadata" }}{{ $kind = true }}{{ end }}{{ end }}
{{- if $kind }}{{ template "type" . }}{{ end }}{{ end }}{{ end }}
## Types
{{ range . }}{{ range .SortedTypes }}{{ $kind := false }}{{ range .Members }}{{ if eq .Name "metadata" }}{{ $kind = true }}{{ end }}{{ end }}
{{- if and .References (not $kind) }}{{ template "type" . }}{{ end }}{{ end }}{{ end -}}
{{- end -}}

{{- define "type" }}
### {{ .Name }}

{{ .Doc | replace "\n" " " }}
{{- if .References }} Used in {{ range $i, $user := .SortedReferences }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $user }}{{ end }}.{{ end }}
{{ if .EnumValues }}
| value | |
| --- | --- |
{{ range .EnumValues -}}
| `{{ .Name }}` | {{ regexReplaceAllLiteral "^[A-Za-z]+:? " (.Doc | trim | replace "\n" " ") "" | replace "|" "\\|" }} |
{{ end }}{{ else if .Members }}
| field | type | |
| --- | --- | --- |
{{ range .Members -}}
| `{{ .Name }}` | {{ if eq .Type.Name "UID" }}string{{ else }}{{ markdownRenderType .Type }}{{ end }} | {{ if has "Required: {}" .Validation }}Required. {{ end }}{{ regexReplaceAllLiteral " More info: .*$" (.Doc | replace "\n" " ") "" | replace "|" "\\|" }} |
{{ end }}{{ end }}{{ end }}
