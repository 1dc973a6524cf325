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
selector="status.currentInitializer=${name}"

# A program that cannot read its turns does not serve the initializer.
kubectl get nsl --field-selector="${selector}" || exit

# While the program runs, the initializer is served. kill -0 also ends the reports if the program is killed.
while kill -0 $$; do
  kubectl patch nsic "${configuration}" --subresource=status \
    --patch '{"status":{"initializers":[{"name":"'"${name}"'","reportTime":"'"$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)"'"}]}}'
  sleep 20
done &
reports=$!
acts=
trap 'kill ${reports} ${acts}' EXIT
trap 'exit 143' TERM INT

# turn NAMESPACE sets uid and returns 0 if the initializer has its turn in the namespace that exists now, and the
# namespace is closed.
turn() {
  turns=$(kubectl get nsl "$1" --output=jsonpath='{.spec.namespaceUID} {.status.currentInitializers}') || return
  live=$(kubectl get namespace "$1" --output=jsonpath='{.metadata.uid} {.metadata.labels.nsinit\.dev/initializing}{.metadata.deletionTimestamp}') || return
  uid=${live% true}
  case "${turns}" in
    "${uid} "*"\"${name}\""*) [ "${live}" != "${uid}" ] ;;
    *) false ;;
  esac
}

# initialize NAMESPACE does the work of a turn. With the UID, it never ends the turn of a later namespace of this name.
initialize() {
  turn "$1" || return
  refused=$(kubectl get namespace "$1" --output=jsonpath='{.metadata.labels.greeting}') || return
  if [ "${refused}" = refused ]; then
    kubectl nsinit fail "$1" "${name}" --uid="${uid}" --message="the label greeting is refused"
    return
  fi
  kubectl create configmap greeting --namespace="$1" --from-literal=from=shell --dry-run=client --output=yaml |
    kubectl apply --server-side --filename=- &&
    kubectl nsinit "done" "$1" "${name}" --uid="${uid}"
}

# A list at the start of each watch repeats what failed. The server ends the watch after a while.
while true; do
  kubectl get nsl --field-selector="${selector}" --watch --request-timeout=30s --output=jsonpath='{.metadata.name}{"\n"}' |
    while read -r namespace; do
      initialize "${namespace}"
    done &
  acts=$!
  wait "${acts}" # in the background, because a trap waits for a command in the foreground
  sleep 1
done
