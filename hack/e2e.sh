#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the end-to-end tests that match a regular expression, on several control planes at the same time.
#
#     hack/e2e.sh REGEXP PLANES

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
output="${PWD}/_output"
dev="${output}/bin/dev"

down() {
  local dir
  for dir in "${output}/e2e" "${output}"/e2e-[0-9]*; do
    [[ ! -d ${dir} ]] || "${dev}" --dir "${dir}" down
  done
}

down
rm -rf "${output}/e2e" "${output}"/e2e-[0-9]*
trap 'down >/dev/null' EXIT
trap 'exit 130' INT TERM
"${dev}" build
FORMAT="${FORMAT:-testname}" NSINIT_DEV_DIR="${output}/e2e" NSINIT_E2E_PLANES="$2" hack/test.sh e2e \
  go test -json -tags e2e -count=1 -timeout 60m -run "$1" ./test/e2e
