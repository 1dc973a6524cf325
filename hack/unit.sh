#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints what go test -json prints of the tests that need no control plane, of every module. It passes its arguments to
# go test.
#
#     hack/unit.sh [ARGUMENT...]

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0
# Many tests wait most of their time, so more of them than there are processors run at the same time.
go test -json -timeout 15m -parallel 8 "$@" ./... || status=1
(cd pkg/initializer/controllerruntime && go test -json -timeout 5m "$@" ./...) || status=1
# A cached result of these does not depend on what is outside of their modules.
for module in test/monitoring hack/chart; do
  (cd "${module}" && go test -json -count=1 "$@" ./...) || status=1
done
(cd test/logstore && go vet ./...) || status=1
exit "${status}"
