#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tests that need no control plane, of every module, with go test -json. It passes its arguments to go test.
#
#     hack/unit.sh [ARGUMENT...]

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0
# Many tests wait most of their time, so more tests than processors run at the same time.
go test -json -timeout 15m -parallel 8 "$@" ./... || status=1
for module in pkg/initializer/controllerruntime test/perf; do
  (cd "${module}" && go test -json -timeout 5m "$@" ./...) || status=1
done
# These tests read files outside of their modules, which the test cache ignores.
for module in test/monitoring hack/chart hack/release hack/site; do
  (cd "${module}" && go test -json -count=1 "$@" ./...) || status=1
done
(cd test/logstore && go vet ./...) || status=1
exit "${status}"
