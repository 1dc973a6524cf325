#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds nsinit's programs of an earlier commit, for the faults of test/faults that replace replicas by an earlier version.
#
#     hack/build-earlier.sh COMMIT DIRECTORY

set -o errexit -o nounset -o pipefail

if [[ $# -ne 2 ]]; then
  echo "usage: hack/build-earlier.sh COMMIT DIRECTORY" >&2
  exit 1
fi
output="$(mkdir -p "$2" && cd "$2" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! commit="$(git rev-parse --verify --quiet --short "$1^{commit}")"; then
  echo "$1 is not a commit of this clone: give EARLIER=COMMIT, in a clone with the history" >&2
  exit 1
fi
if [[ "$(cat "${output}/.nsinit.commit" 2>/dev/null)" == "${commit}" ]]; then
  exit 0
fi
rm -f "${output}/.nsinit.commit"
echo "==> building the programs of commit ${commit}"
COPY="$(mktemp -d)"
trap 'rm -rf "${COPY}"' EXIT
git archive "${commit}" | tar --extract --directory="${COPY}"
bash "${COPY}/hack/build.sh" "${output}"
echo "${commit}" >"${output}/.nsinit.commit" # see hack/dev/controlplane/build.go
