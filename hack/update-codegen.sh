#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Regenerates all generated code, and the references in docs: deepcopy, defaults, conversion,
# declarative validation, protobuf, OpenAPI, clients, listers, informers and apply
# configurations. `make generate` runs it here, `make verify` in a copy of the tree.

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "${ROOT}"

MODULE=github.com/nsinit/nsinit
BOILERPLATE="${ROOT}/hack/boilerplate.go.txt"
TOOLS="${NSINIT_TOOLS_DIR:-${ROOT}/_output/tools}"
mkdir -p "${TOOLS}"
export GOBIN="${TOOLS}" GOFLAGS="-mod=mod -buildvcs=false -trimpath"
export PATH="${TOOLS}:${PATH}"

if ! command -v protoc >/dev/null; then
  echo "protoc is missing: run hack/install-system-packages.sh, or install the package protobuf-compiler" >&2
  exit 1
fi

module_dir() { go mod download "$1" && go list -m -f '{{.Dir}}' "$1"; }

echo "==> protobuf"
go install k8s.io/code-generator/cmd/go-to-protobuf k8s.io/code-generator/cmd/go-to-protobuf/protoc-gen-gogo \
  golang.org/x/tools/cmd/goimports
PROTO_ROOT="$(mktemp -d)"
trap 'rm -rf "${PROTO_ROOT}"' EXIT
mkdir -p "${PROTO_ROOT}/out/github.com/nsinit" "${PROTO_ROOT}/import/k8s.io" "${PROTO_ROOT}/import/github.com/gogo"
ln -s "${ROOT}" "${PROTO_ROOT}/out/${MODULE}"
ln -s "$(module_dir k8s.io/apimachinery)" "${PROTO_ROOT}/import/k8s.io/apimachinery"
ln -s "$(module_dir github.com/gogo/protobuf)" "${PROTO_ROOT}/import/github.com/gogo/protobuf"
go-to-protobuf \
  --go-header-file="${BOILERPLATE}" \
  --packages="${MODULE}/sdk/apis/nsinit/v1alpha1" \
  --apimachinery-packages=-k8s.io/apimachinery/pkg/runtime/schema,-k8s.io/apimachinery/pkg/runtime,-k8s.io/apimachinery/pkg/apis/meta/v1 \
  --output-dir="${PROTO_ROOT}/out" \
  --proto-import="${PROTO_ROOT}/import"

# shellcheck source=/dev/null
source "$(module_dir k8s.io/code-generator)/kube_codegen.sh"
# metav1.Condition names a validation function in another package, which validation-gen does not
# read. Every field of a metav1 type is opaque to our validation, so the package is not needed.
READONLY_PKGS=("${KUBE_CODEGEN_READONLY_PKGS[@]}")
KUBE_CODEGEN_READONLY_PKGS=()
for pkg in "${READONLY_PKGS[@]}"; do
  [[ "${pkg}" == k8s.io/apimachinery/pkg/apis/meta/v1 ]] || KUBE_CODEGEN_READONLY_PKGS+=("${pkg}")
done

kube::codegen::gen_helpers --boilerplate "${BOILERPLATE}" "${ROOT}/pkg/apis"
# The generators find the packages of the module in which they run.
cd "${ROOT}/sdk"
kube::codegen::gen_helpers --boilerplate "${BOILERPLATE}" "${ROOT}/sdk/apis"

KUBE_CODEGEN_READONLY_PKGS=("${READONLY_PKGS[@]}")
kube::codegen::gen_openapi \
  --output-dir "${ROOT}/sdk/generated/openapi" \
  --output-pkg "${MODULE}/sdk/generated/openapi" \
  --output-model-name-file zz_generated.model_name.go \
  --report-filename "${ROOT}/hack/openapi-violations.list" \
  ${UPDATE_OPENAPI_VIOLATIONS:+--update-report} \
  --boilerplate "${BOILERPLATE}" \
  "${ROOT}/sdk/apis"

# Written to a file, so that a failure of the generator is not hidden by a pipe.
go -C "${ROOT}" run ./hack/models-schema >"${PROTO_ROOT}/schema.json"
kube::codegen::gen_client \
  --with-watch \
  --prefers-protobuf \
  --with-applyconfig \
  --applyconfig-openapi-schema "${PROTO_ROOT}/schema.json" \
  --output-dir "${ROOT}/sdk/generated" \
  --output-pkg "${MODULE}/sdk/generated" \
  --boilerplate "${BOILERPLATE}" \
  "${ROOT}/sdk/apis"

cd "${ROOT}"
echo "==> docs/reference, docs/metrics.md and docs/why.md"
UPDATE_DOCS=true go test -count=1 -run='^TestDocs$' ./pkg/diagnosis
(cd hack/tools && CGO_ENABLED=0 go install github.com/elastic/crd-ref-docs)
go run "${MODULE}/hack/reference" "${ROOT}"
crd-ref-docs --log-level=ERROR --source-path=sdk/apis --config=hack/reference/crd-ref-docs.yaml --templates-dir=hack/reference/templates \
  --renderer=markdown --output-path=docs/reference/api.md

echo "==> Helm chart"
(cd hack/chart && go run . "${ROOT}")
