#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Draws docs/images/dashboard-healthy.svg and dashboard-failing.svg from the metrics of a real control plane. This takes about
# 14 minutes. The numbers in them are those of the tables in docs/alerts.md.
#
#     hack/dashboards.sh [--draw]
#
# --draw draws what was recorded before.

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
plane="${PWD}/_output/dashboards"
dev="${PWD}/_output/bin/dev"
components=artifacts/deploy/components/service-monitor

if [[ ${1:-} != --draw ]]; then
  go build -o "${dev}" ./hack/dev
  "${dev}" --dir "${plane}" down
  rm -rf "${plane}"
  trap '"${dev}" --dir "${plane}" down' EXIT
  "${dev}" build
  "${dev}" --dir "${plane}" up
  NSINIT_DEV_DIR="${plane}" go test -tags e2e,dashboards -count=1 -v -timeout 20m -run '^TestDashboards$' ./test/packaging
fi

(cd test/monitoring && go build -o "${dev%/*}/monitoring" .)
for name in healthy failing; do
  "${dev%/*}/monitoring" --rules "${components}/alerts.yaml" --dashboard "${components}/dashboard.json" --scrapes "${plane}/${name}" \
    --document docs/alerts.md --picture "docs/images/dashboard-${name}.svg" >/dev/null
done
