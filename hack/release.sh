#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds a release into _output/release: the programs for each platform, the manifests, the chart, a
# bill of materials of each program, and the checksums. Builds of the same commit with the same Go are
# identical.
#
#     VERSION=v0.1.0 hack/release.sh [PLATFORM...]

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT="${PWD}"
OUT="${ROOT}/_output/release"
export VERSION="${VERSION:?set it, such as VERSION=v0.1.0}"
if [[ $# -eq 0 ]]; then
  set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
fi
COMMIT="$(git rev-parse HEAD)"
EPOCH="$(git log -1 --format=%ct)"
DATE="$(date --utc --date="@${EPOCH}" +%Y-%m-%dT%H:%M:%SZ)"
export COMMIT DATE
if [[ -n "$(git status --porcelain)" ]]; then
  echo "there are uncommitted changes, so the release could not be reproduced: commit them" >&2
  exit 1
fi

# An archive that depends only on its content.
archive() {
  tar --create --sort=name --mtime="@${EPOCH}" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --directory="$2" . |
    gzip --no-name --best >"$1"
}

rm -rf "${OUT}"
mkdir -p "${OUT}"
work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT
for platform in "$@"; do
  echo "==> ${platform}"
  export GOOS="${platform%/*}" GOARCH="${platform#*/}"
  name="${GOOS}-${GOARCH}"
  mkdir -p "${work}/${name}/plugin"
  hack/build.sh "${work}/${name}/plugin" ./cmd/kubectl-nsinit
  cp LICENSE cmd/kubectl-nsinit/kubectl_complete-nsinit "${work}/${name}/plugin"
  archive "${OUT}/kubectl-nsinit-${name}.tar.gz" "${work}/${name}/plugin"
  if [[ ${GOOS} == linux ]]; then # the programs that run in a cluster
    hack/build.sh "${work}/${name}/programs" ./cmd/nsinit-apiserver ./cmd/nsinit-controller-manager ./cmd/policy-population ./vendor-hooks/http-provisioner
    cp LICENSE "${work}/${name}/programs"
    archive "${OUT}/nsinit-${name}.tar.gz" "${work}/${name}/programs"
  fi
done
unset GOOS GOARCH

echo "==> bills of materials"
(cd hack/tools && GOBIN="${ROOT}/_output/tools" go install -trimpath github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod)
for platform in "$@"; do
  name="${platform/\//-}"
  for program in "${work}/${name}"/*/*; do
    if [[ "$(go version "${program}" 2>/dev/null)" == *": go"* ]]; then
      # Without the time and the checksums of the tool, which depend on this machine.
      _output/tools/cyclonedx-gomod bin -json -std -noserial -version "${VERSION}" -output - "${program}" |
        jq --arg date "${DATE}" '.metadata.timestamp = $date | del(.metadata.tools)' >"${OUT}/$(basename "${program}" .exe)-${name}.cdx.json"
    fi
  done
done

echo "==> manifests"
mkdir "${work}/manifests"
git archive HEAD artifacts docs CHANGELOG.md LICENSE | tar --extract --directory="${work}/manifests"
archive "${OUT}/nsinit-manifests.tar.gz" "${work}/manifests"

(cd "${OUT}" && sha256sum -- * >SHA256SUMS)
cat "${OUT}/SHA256SUMS"
