#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Installs the Debian packages of some tasks, and those of all tasks without an argument.
#
#     hack/install-system-packages.sh [TASK...]
#
# The tasks are test, for the end-to-end tests and the demo, verify, for make generate, verify, lint and site, and browser, for the
# test of the site's accessibility. The tests that need no control plane need no package.

set -o errexit -o nounset -o pipefail

missing=()
# need PROGRAM PACKAGE... adds the packages if the program is missing.
need() {
  command -v "$1" >/dev/null || missing+=("${@:2}")
}

[[ $# -gt 0 ]] || set -- test verify browser
for task in "$@"; do
  case "${task}" in
  test)
    need jq jq
    need openssl openssl
    need curl curl ca-certificates
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || need initdb postgresql
    ;;
  verify)
    need cc gcc libc6-dev
    need protoc protobuf-compiler libprotobuf-dev
    need shellcheck shellcheck
    need hugo hugo
    ;;
  browser)
    need chromium chromium
    ;;
  *)
    echo "unknown task ${task}: give test, verify or browser" >&2
    exit 1
    ;;
  esac
done
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
