#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of a target of the Makefile. It first prints what they cover, take and need, as CONTRIBUTING.md says.
#
#     hack/test.sh TARGET [FLAG...]
#
# The flags are those of test/runner.

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target="$1"
shift

awk -F' [|] ' -v "command=| \`make ${target}\`" '$1 == command {
  printf "==> make '"${target}"': %s\n    takes %s, and %s from empty caches, on two cores\n    needs %s\n", $5, $2, $3, $4
}' CONTRIBUTING.md | tr -d '`|'
grep '^Every command needs' CONTRIBUTING.md
free="$(df --output=avail --block-size=1G . | tail -1)"
if ((free < 10)); then
  echo "WARNING: only ${free} GB of disk are free: programs fail in unexpected places if it becomes full" >&2
fi
case "${target}" in
  unit) ;;
  test-quick) hack/install-system-packages.sh test verify ;;
  test-all | packaging | stress) hack/install-system-packages.sh ;;
  *) hack/install-system-packages.sh test ;;
esac

. hack/huge-pages.sh
# The tests, and the programs that they start, spend memory instead of time on garbage collection.
export GOGC=600
mkdir -p _output/tests
echo "==> building the test runner"
go build -o _output/bin/runner ./test/runner
part="${target}"
case "${target}" in
  test-quick) part=unit ;;
  stress) [[ $* == *--run=[!\ ]* ]] || part="test" ;;
esac
_output/bin/runner "$@" "${part}"
