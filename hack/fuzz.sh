#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs each fuzz target for FUZZTIME.

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
grep -rlE '^func Fuzz' --include='*_test.go' artifacts pkg sdk vendor-hooks | while read -r file; do
  grep -oE '^func Fuzz[A-Za-z0-9_]*' "${file}" | awk '{print $2}' | while read -r target; do
    echo "==> ${target}"
    go -C "$(dirname "${file}")" test -run '^$' -fuzz "^${target}\$" -fuzztime "${FUZZTIME:-30s}" . </dev/null
  done
done
