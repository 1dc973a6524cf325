#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Checks the source. Each check that fails prints how to fix it.
#
#     hack/verify.sh [--quick]
#
# --quick leaves out the checks that take minutes: the generated code and golangci-lint.

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "${ROOT}"
failed=0
quick="${1:-}"

fail() {
  echo "FAILED: $1" >&2
  echo "        fix it with: $2" >&2
  failed=1
}

echo "==> headers"
while read -r file; do
  [[ ! -f ${file} ]] || head -n 8 "${file}" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
    fail "${file} has no header" "the first lines of hack/boilerplate.go.txt"
done < <(git ls-files '*.go' '*.sh' '*.yaml' Makefile Dockerfile .ci/run |
  grep -vE '/zz_generated\.|^sdk/generated/|/generated\.pb\.go$|/testdata/')

generated() {
  echo "==> generated code"
  COPY="$(mktemp -d)"
  trap 'rm -rf "${COPY}"' EXIT
  git ls-files -z --cached --others --exclude-standard --deduplicate |
    tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory="${COPY}"
  if ! NSINIT_TOOLS_DIR="${ROOT}/_output/tools" bash "${COPY}/hack/update-codegen.sh" >"${COPY}.log" 2>&1; then
    cat "${COPY}.log" >&2
    fail "the generators failed" "what they say above"
  fi
  rm -f "${COPY}.log"
  while read -r file; do
    cmp -s "${file}" "${COPY}/${file}" || fail "${file} is out of date" "make generate"
  done < <(git ls-files pkg sdk docs artifacts | grep -E '/zz_generated\.|^sdk/generated/|/generated\.(pb\.go|proto)$|^docs/(metrics\.md$|why\.md$|reference/)|^artifacts/helm/nsinit/templates/')
  while read -r file; do
    [[ -f ${file} ]] || fail "${file} is missing" "make generate"
  done < <(cd "${COPY}" && find pkg sdk -name 'zz_generated.*' -o -name 'generated.pb.go' && find artifacts/helm/nsinit/templates docs/reference -type f)
}
[[ ${quick} == --quick ]] || generated

echo "==> modules"
for module in $(hack/modules.sh) hack/tools hack/dev/kubernetes/v1.37; do
  (cd "${module}" && go mod tidy -diff >/dev/null 2>&1) || fail "${module}/go.mod is not tidy" "(cd ${module} && go mod tidy)"
done
if go list -deps ./... | grep -qE '^k8s.io/kubernetes($|/)'; then
  fail "the product imports k8s.io/kubernetes" "go list -deps shows by which package; use what the staging modules export"
fi
# A program with client-go alone has 78 modules. The SDK may add 30 percent.
modules="$(cd sdk && go list -m all)"
if [[ $(wc -l <<<"${modules}") -gt 101 ]] || grep -qE '^(k8s.io/(apiserver|component-base)|go.etcd.io/|github.com/google/cel-go)' <<<"${modules}"; then
  fail "the SDK requires $(wc -l <<<"${modules}") modules, or one of the server" "(cd sdk && go mod graph) shows by which module; write what it needs without it"
fi
if go list -deps ./cmd/... ./vendor-hooks/... | grep -q '^go.etcd.io/gofail'; then
  fail "the programs contain failpoints" "gofail disable, in the folders that git status shows: only hack/build-failpoints.sh enables them, in a copy"
fi
failpoints="$(git ls-files -z '*.go' | xargs -0 awk '/^[[:space:]]*\/\/ gofail: var / {on = 1; next} on && sub(/^[[:space:]]*\/\/ /, "") {print; next} {on = 0}')"
if ! printf 'package p\nfunc _() {\n%s\n}\n' "${failpoints}" | gofmt >/dev/null 2>&1; then
  fail "a comment after a failpoint is no Go code: ${failpoints//$'\n'/; }" "move it before the line gofail: var, since gofail makes it code"
fi
versions="$(go list -m all | awk '$1 ~ /^k8s\.io\/(api|apimachinery|apiserver|client-go|code-generator|component-base|controller-manager|kube-aggregator|kms|streaming)$/ {print $2}' | sort -u)"
[[ $(wc -l <<<"${versions}") -eq 1 ]] || fail "the modules of Kubernetes are at several versions: ${versions//$'\n'/ }" "go get k8s.io/NAME@VERSION for each"

echo "==> licences"
while read -r module dir; do
  [[ -n ${dir} ]] || continue
  licence="$(find "${dir}" -maxdepth 1 -iregex '.*/\(licen[cs]e\|copying\)[^/]*' | head -n 1)"
  if [[ -z ${licence} ]] || ! grep -qiE 'apache license|mit license|permission is hereby granted|redistribution and use|isc license|mozilla public license' "${licence}"; then
    fail "${module} has no known free licence" "another dependency"
  fi
done < <({
  go list -deps -f '{{with .Module}}{{if not (or .Main .Replace)}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/... ./vendor-hooks/...
  (cd sdk/initializer/controllerruntime && go list -deps -f '{{with .Module}}{{if not (or .Main .Replace)}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./...)
} | sort -u)

echo "==> documentation site"
hack/site.sh || fail "the documentation site has defects" "what they say above"

echo "==> commit subjects"
# The rule holds after this commit. A shallow clone may not contain it.
since=054ee05430a1b3edffe42eccd8f81b268e0d34dc
rule='^[a-z0-9/, -]+: [^ ]'
if git merge-base --is-ancestor "${since}" HEAD 2>/dev/null; then
  while read -r subject; do
    [[ ${#subject} -le 72 && ${subject} =~ ${rule} ]] ||
      fail "the commit subject \"${subject}\" is not \"area: change\" in at most 72 characters" "git rebase --interactive, and reword the commit"
  done < <(git log --no-merges --format=%s "${since}..")
fi

hack/lint.sh "${quick}" || fail "the linters found something" "what they say above"

if [[ ${failed} -ne 0 ]]; then
  exit 1
fi
echo "everything is in order"
