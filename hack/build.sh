#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds the programs of nsinit: static, reproducible, and with their version.
#
#     hack/build.sh DIRECTORY [PACKAGE...]
#
# GOOS and GOARCH choose the platform. VERSION is the version, such as v0.1.0. The default is a
# development version. COMMIT, DATE and TREE_STATE are the commit, its time, and whether the source is it
# (clean, the default) or has changes (dirty).

set -o errexit -o nounset -o pipefail

if [[ $# -eq 0 ]]; then
  echo "usage: hack/build.sh DIRECTORY [PACKAGE...]" >&2
  exit 1
fi
output="$(mkdir -p "$1" && cd "$1" && pwd)"
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ $# -eq 0 ]]; then
  set -- ./cmd/nsinit-apiserver ./cmd/nsinit-controller-manager ./cmd/kubectl-nsinit ./cmd/policy-population ./vendor-hooks/http-provisioner
fi

binary="$(sed -n 's/^const BinaryVersion = "\(.*\)"$/\1/p' pkg/installation/version.go)"
version="${VERSION:-v${binary}.0-dev}"
if [[ ! ${version} =~ ^v${binary//./\\.}\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
  echo "VERSION=${version} does not belong to this source, whose version is ${binary} (pkg/installation/version.go): give v${binary}.PATCH, or change both" >&2
  exit 1
fi

package=k8s.io/component-base/version
stamps="-X ${package}.gitVersion=${version} -X ${package}.gitMajor=${binary%.*} -X ${package}.gitMinor=${binary#*.}"
if [[ -n ${COMMIT:-} ]]; then
  stamps+=" -X ${package}.gitCommit=${COMMIT} -X ${package}.gitTreeState=${TREE_STATE:-clean} -X ${package}.buildDate=${DATE:?the time of the commit}"
fi
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w ${stamps}" -o "${output}/" "$@"
