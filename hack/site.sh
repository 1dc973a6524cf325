#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds the documentation site, with the documents of each release, into _output/site with Hugo. It fails with the document and the line of each broken
# link, broken anchor and missing picture.

set -o errexit -o nounset -o pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
mkdir -p "${ROOT}/_output/tools"
(cd "${ROOT}/hack/site" && go build -trimpath -o "${ROOT}/_output/tools/site" .)
"${ROOT}/_output/tools/site" --root "${ROOT}" --output "${ROOT}/_output/site"
