#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Lints Go code, prose and shell scripts.
#
#     hack/lint.sh [--quick]
#
# --quick runs gofmt and go vet instead of golangci-lint, and does not check prose.

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "${ROOT}"
TOOLS="${ROOT}/_output/tools"

if [[ ${1:-} == --quick ]]; then
  echo "==> gofmt and go vet"
  unformatted="$(git ls-files '*.go' | xargs gofmt -l)"
  [[ -z ${unformatted} ]] || { echo "not formatted, run gofmt -w: ${unformatted}" >&2; exit 1; }
  go vet -tags e2e,dashboards ./...
else
  echo "==> building the linters (some minutes, the first time)"
  (cd hack/tools && GOBIN="${TOOLS}" go install -trimpath github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

  echo "==> golangci-lint"
  for module in $(hack/modules.sh); do
    (cd "${module}" && "${TOOLS}/golangci-lint" run --config "${ROOT}/.golangci.yaml" ./...)
  done

  hack/prose.sh
fi

echo "==> shellcheck"
git ls-files '*.sh' .ci/run | xargs shellcheck
