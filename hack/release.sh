#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds a release into _output/release, as docs/release.md explains: the programs for each platform, a bill of
# materials of each program, the image and the chart as OCI layouts, the manifests, the manifest of the plugin for
# krew, provenance, checksums and signatures. Builds of the same commit with the same Go are identical, except for
# signatures.
#
#     VERSION=v0.1.0 COSIGN_KEY=FILE hack/release.sh [PLATFORM...]
#
# The variable COSIGN_PASSWORD is the password of the key. With UNSIGNED=true, nothing is signed. REPOSITORY is the name
# of the image. RELEASE_DIR is another folder: it is replaced if it has another release. With SNAPSHOT=true, the release
# contains the changes of the working tree, and cannot be reproduced.

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT="${PWD}"
OUT="${RELEASE_DIR:-${ROOT}/_output/release}"
export VERSION="${VERSION:?set it, such as VERSION=v0.1.0}"
if [[ $# -eq 0 ]]; then
  set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
fi
if ! command -v jq >/dev/null; then
  echo "install jq first" >&2
  exit 1
fi
if [[ -e ${OUT} && ! -e ${OUT}/SHA256SUMS && -n "$(ls -A "${OUT}")" ]]; then
  echo "${OUT} is not empty, and has no release: set RELEASE_DIR to another folder, or empty this one" >&2
  exit 1
fi
options=(--repository="${REPOSITORY:-ghcr.io/nsinit/nsinit}" --platforms="$*")
if [[ ${UNSIGNED:-} == true ]]; then
  options+=(--unsigned)
elif [[ -z ${COSIGN_KEY:-} ]]; then
  echo "set COSIGN_KEY to a private key of cosign generate-key-pair, and COSIGN_PASSWORD to its password; or set UNSIGNED=true to sign nothing" >&2
  exit 1
else
  COSIGN_KEY="$(realpath "${COSIGN_KEY}")" # the programs run in other folders
  export COSIGN_KEY
fi
if [[ ${SNAPSHOT:-} == true ]]; then
  options+=(--snapshot)
  export TREE_STATE=dirty
elif [[ -n "$(git status --porcelain)" ]]; then
  echo "there are uncommitted changes, so the release could not be reproduced: commit them" >&2
  exit 1
fi
COMMIT="$(git rev-parse HEAD)"
EPOCH="$(git log -1 --format=%ct)"
DATE="$(date --utc --date="@${EPOCH}" +%Y-%m-%dT%H:%M:%SZ)"
export COMMIT DATE

# An archive that depends only on its content.
archive() {
  tar --create --sort=name --mtime="@${EPOCH}" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --directory="$2" . |
    gzip --no-name >"$1"
}

work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT
release="${work}/release" # it becomes OUT when it is complete
mkdir "${release}"
for platform in "$@"; do
  echo "==> ${platform}"
  export GOOS="${platform%/*}" GOARCH="${platform#*/}"
  name="${GOOS}-${GOARCH}"
  mkdir -p "${work}/${name}/plugin"
  hack/build.sh "${work}/${name}/plugin" ./cmd/kubectl-nsinit
  cp LICENSE cmd/kubectl-nsinit/kubectl_complete-nsinit "${work}/${name}/plugin"
  archive "${release}/kubectl-nsinit-${name}.tar.gz" "${work}/${name}/plugin"
  if [[ ${GOOS} == linux ]]; then # the programs that run in a cluster
    hack/build.sh "${work}/${name}/programs" ./cmd/nsinit-apiserver ./cmd/nsinit-controller-manager ./cmd/policy-population ./vendor-hooks/http-provisioner
    cp LICENSE "${work}/${name}/programs"
    archive "${release}/nsinit-${name}.tar.gz" "${work}/${name}/programs"
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
        jq --arg date "${DATE}" '.metadata.timestamp = $date | del(.metadata.tools)' >"${release}/$(basename "${program}" .exe)-${name}.cdx.json"
    fi
  done
done

echo "==> image, chart, manifests, provenance"
mkdir "${work}/source"
git ls-files -z artifacts docs CHANGELOG.md LICENSE | tar --create --null --files-from=- | tar --extract --directory="${work}/source"
(cd hack/release && go run . --version="${VERSION}" --commit="${COMMIT}" --epoch="${EPOCH}" --programs="${work}" --source="${work}/source" --output="${release}" "${options[@]}")
rm -rf "${OUT}"
mkdir -p "$(dirname "${OUT}")"
mv "${release}" "${OUT}"
cat "${OUT}/SHA256SUMS"
