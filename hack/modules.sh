#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints the folders of the Go modules with code of this project.

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
git ls-files '*go.mod' ':!hack/dev/kubernetes' ':!hack/tools' ':!test/perf/alternatives' | xargs -n 1 dirname
