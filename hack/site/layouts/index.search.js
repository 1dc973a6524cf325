{{- /* Copyright The nsinit Authors.
SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* What the search finds: each heading with the text up to the next one. A browser loads a script also from a folder, without a server. */ -}}
{{- $sections := slice -}}
{{- range $page := site.Pages -}}
  {{- $url := strings.TrimPrefix "/" .Params.url -}}
  {{- $content := replaceRE `<a class="anchor".*?</a>|(?s:<h1.*?</h1>)` "" .Content -}}
  {{- $content = replaceRE `<(p|li|td|th|tr|br|pre)\b` " $0" $content -}}
  {{- range split (replaceRE `<h[234] id=` "\x00$0" $content) "\x00" -}}
    {{- $section := dict "page" $page.Title "group" $page.Params.group "url" $url "text" . -}}
    {{- range findRESubmatch `(?s)^<h[234] id="(.*?)">(.*?)</h[234]>(.*)$` . -}}
      {{- $heading := trim (index . 2 | plainify | htmlUnescape) " " -}}
      {{- $section = merge $section (dict "heading" $heading "url" (printf "%s#%s" $url (index . 1)) "text" (index . 3)) -}}
    {{- end -}}
    {{- $text := replaceRE `\s+` " " ($section.text | plainify | htmlUnescape) -}}
    {{- $sections = $sections | append (merge $section (dict "text" (trim $text " "))) -}}
  {{- end -}}
{{- end -}}
globalThis.searchIndex = {{ $sections | jsonify }};
