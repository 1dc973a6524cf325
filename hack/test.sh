#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs tests, and ends with the ten slowest tests, the ten slowest packages and the failed tests.
#
#     hack/test.sh NAME COMMAND [ARGUMENT...]
#
# COMMAND prints what go test -json prints. The output of failed tests is printed in full. The output of all tests is in
# _output/tests/NAME.json. FORMAT is a format of gotestsum, such as standard-verbose.

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
gotestsum="${ROOT}/_output/tools/gotestsum"
events="${ROOT}/_output/tests/$1.json"
shift

mkdir -p "${ROOT}/_output/tests"
(cd "${ROOT}/hack/tools" && GOBIN="${ROOT}/_output/tools" go install -trimpath gotest.tools/gotestsum)

status=0
"${gotestsum}" --format "${FORMAT:-pkgname}" --jsonfile "${events}" --raw-command -- "$@" || status=$?

# elapsed prints the seconds and the name of what passed or failed, without this project's path. The time in which a test
# waited for other tests, which is its attribute waited, does not count.
elapsed() {
  sed -nE -e 's/^\{.*"Action":"attr","Package":"[^"]*","Test":"([^"]*)","Key":"waited","Value":"([0-9.]+)"\}$/waited \2 - \1/p' \
    -e 's/^\{.*"Action":"('"$1"')","Package":"(github\.com\/nsinit\/nsinit\/)?([^"]*)"(,"Test":"([^"]*)")?,"Elapsed":([0-9.e+-]+)(,"FailedBuild":"[^"]*")?\}$/ended \6 \3 \5/p' \
    "${events}" | awk '$1 == "waited" {waited[$4] = $2; next} {print $2 - waited[$4], $3, $4}'
}
echo
echo "==> the slowest tests"
elapsed 'pass|fail' | awk 'NF == 3' | sort -k1,1gr | awk 'NR <= 10 {printf "%8.1fs  %s %s\n", $1, $2, $3}'
echo "==> the slowest packages"
elapsed 'pass|fail' | awk 'NF == 2' | sort -k1,1gr | awk 'NR <= 10 {printf "%8.1fs  %s\n", $1, $2}'
echo "==> failed tests"
elapsed fail | awk '{printf "%8.1fs  %s %s\n", $1, $2, $3}' | grep . || echo "none"
exit "${status}"
