#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Checks every text that a person reads against the rules in hack/lint/prose: documents, comments,
# messages, help, manifests and scripts.

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "${ROOT}"
TOOLS="${ROOT}/_output/tools"

# Vale parses Go with a library in C, whose warnings do not matter here.
(cd hack/tools && CGO_ENABLED=1 CGO_CFLAGS=-w GOBIN="${TOOLS}" go install -trimpath github.com/vale-cli/vale/v3/cmd/vale)

echo "==> prose"
files() {
  git ls-files --cached --others --exclude-standard "$@" |
    grep -vE '/zz_generated\.|^sdk/generated/|/generated\.pb\.go$|/testdata/|^hack/lint/prose/|^docs/reference/'
}
failed=0
files '*.md' '*.go' | xargs "${TOOLS}/vale" --config hack/lint/prose/prose.ini --output line || failed=1
files '*.go' '*.sh' '*.yaml' | xargs "${TOOLS}/vale" --config hack/lint/prose/text.ini --output line || failed=1
exit "${failed}"
