#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds nsinit's programs with failpoints, for the campaign in test/faults, and etcd with the failpoints of its write-ahead log. It works
# on a copy of the source, so the source and the programs of hack/build.sh have no failpoints.
#
#     hack/build-failpoints.sh DIRECTORY [PACKAGE...]
#
# The environment of a program sets the actions of its failpoints. With GOFAIL_HTTP=ADDRESS, PUT /NAME
# changes them while it runs:
#
#     GOFAIL_FAILPOINTS='lifecycleBeforeOpenGate=sleep(2000);clockOffset=return("-90s")'
#     GOFAIL_FAILPOINTS='initializerBeforeWrite=2*off->panic'

set -o errexit -o nounset -o pipefail

if [[ $# -eq 0 ]]; then
  echo "usage: hack/build-failpoints.sh DIRECTORY [PACKAGE...]" >&2
  exit 1
fi
output="$(mkdir -p "$1" && cd "$1" && pwd)"
shift
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "${ROOT}"
# The last commit that changed what is tested. See hack/dev/controlplane/build.go.
tested=(go.mod cmd pkg sdk artifacts vendor-hooks hack/dev/kubernetes ':!*_test.go' ':!*.md')
dirty="$([[ -z "$(git status --porcelain -- "${tested[@]}")" ]] || echo -dirty)"
git log -1 --format="%h${dirty}" -- "${tested[@]}" >"${output}/.nsinit.commit"
TOOLS="${NSINIT_TOOLS_DIR:-${ROOT}/_output/tools}"

(cd hack/tools && GOBIN="${TOOLS}" go install -trimpath go.etcd.io/gofail)

COPY="$(mktemp -d)"
trap 'rm -rf "${COPY}"' EXIT
# The tests and docs are not part of the programs.
git ls-files -z --cached --others --exclude-standard --deduplicate -- ':!test' ':!docs' |
  tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory="${COPY}"
cd "${COPY}"

mapfile -t packages < <(grep -rl --include='*.go' -E '^\s*// gofail: var ' pkg sdk cmd vendor-hooks | xargs -n 1 dirname | sort -u)
duplicates="$(grep -rhoE --include='*.go' '^\s*// gofail: var \w+' pkg sdk cmd vendor-hooks | awk '{print $NF}' | sort | uniq -d)"
if [[ -n ${duplicates} ]]; then
  echo "these failpoints exist more than once, and a program with both does not start: ${duplicates//$'\n'/ }" >&2
  exit 1
fi
"${TOOLS}/gofail" enable "${packages[@]}"
version="$(cd hack/tools && go list -m -f '{{.Version}}' go.etcd.io/gofail)"
require() {
  go mod edit -require="go.etcd.io/gofail@${version}"
  grep '^go.etcd.io/gofail ' "${COPY}/hack/tools/go.sum" >>go.sum
}
require
GOFLAGS="${GOFLAGS:-} -mod=mod -tags=failpoints" bash hack/build.sh "${output}" "$@"

[[ $# -eq 0 ]] || exit 0
cd hack/dev/kubernetes/v1.37
server=go.etcd.io/etcd/server/v3
cp --recursive --no-preserve=mode "$(GOWORK=off go list -m -f '{{.Dir}}' "${server}")" "${COPY}/etcd"
"${TOOLS}/gofail" enable "${COPY}/etcd/storage/wal"
require
go mod edit -replace="${server}=${COPY}/etcd"
GOWORK=off GOFLAGS="-trimpath -mod=mod" go build -buildvcs=false -ldflags="-s -w" -o "${output}/etcd" "${server}"
