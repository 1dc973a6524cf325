#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Lets Linux give huge pages to every program until the script that sources this file ends. Go does not ask for them, and memory in
# pages of 4 KiB takes a large part of the CPU time of a virtual machine in which page faults are slow. It needs root.
#
#     . hack/huge-pages.sh

huge_pages=/sys/kernel/mm/transparent_hugepage/enabled
if [[ -w ${huge_pages} && "$(<"${huge_pages}")" == *'[madvise]'* ]]; then
  echo "==> huge pages for every program, until this command ends (${huge_pages})"
  trap 'echo madvise >"${huge_pages}"' EXIT
  echo always >"${huge_pages}"
fi
