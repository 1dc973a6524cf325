#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Installs the Debian packages that make generate, make verify, the demo and the end-to-end tests need.

set -o errexit -o nounset -o pipefail

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v protoc >/dev/null || missing+=(protobuf-compiler libprotobuf-dev)
command -v jq >/dev/null || missing+=(jq)
command -v openssl >/dev/null || missing+=(openssl)
command -v curl >/dev/null || missing+=(curl ca-certificates)
command -v shellcheck >/dev/null || missing+=(shellcheck)
command -v hugo >/dev/null || missing+=(hugo)
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || missing+=(postgresql)
[[ ${#missing[@]} -gt 0 ]] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "install these packages first: ${missing[*]}" >&2
  exit 1
fi
as_root=()
[[ ${EUID} -eq 0 ]] || as_root=(sudo)
echo "==> installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
# hugo recommends Debian's Go, which is older than the one that is needed.
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
