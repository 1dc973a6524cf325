#!/bin/sh
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# An initializer that uses only kubectl, as docs/protocol.md explains. It writes a ConfigMap into
# each new namespace.
#
#   initializer.sh INITIALIZER CONFIGURATION
set -u
name=$1
configuration=$2

# While the program runs, the initializer is served.
while true; do
  kubectl patch nsic "${configuration}" --subresource=status \
    --patch '{"status":{"initializers":[{"name":"'"${name}"'","reportTime":"'"$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)"'"}]}}'
  sleep 20
done &
trap 'kill $!' EXIT

# has_turn NAMESPACE: the initializer has its turn in the namespace that exists now, and the namespace is closed.
has_turn() {
  turns=$(kubectl get nsl "$1" --output=jsonpath='{.spec.namespaceUID} {.status.currentInitializers}') || return
  live=$(kubectl get namespace "$1" --output=jsonpath='{.metadata.uid} {.metadata.labels.nsinit\.dev/initializing}{.metadata.deletionTimestamp}') || return
  case "${turns}" in
    "${live% true} "*"\"${name}\""*) [ "${live}" != "${live% true}" ] ;;
    *) false ;;
  esac
}

initialize() {
  has_turn "$1" &&
    kubectl create configmap greeting --namespace="$1" --from-literal=from=shell --dry-run=client --output=yaml |
    kubectl apply --server-side --filename=- &&
    kubectl nsinit "done" "$1" "${name}"
}

# A list at the start of each watch repeats what failed. The server ends the watch after a while.
while true; do
  kubectl get nsl --field-selector="status.currentInitializer=${name}" --watch \
    --request-timeout=30s --output=jsonpath='{.metadata.name}{"\n"}' |
    while read -r namespace; do
      initialize "${namespace}"
    done
  sleep 1
done
