#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Plays both user stories of the Namespace Initializer KEP on a separate control plane, and checks each step. It needs _output/bin/dev.
# hack/recording draws the steps that show a command.
#
#     hack/demo.sh

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
DIR="${PWD}/_output/demo"
APPROVAL=approval.example.com
# What policy-population puts into each namespace.
POPULATED=(rolebindings/namespace-admin resourcequotas/default limitranges/default networkpolicies/default-deny)
PASSWORD=demo-password

dev() { "${PWD}/_output/bin/dev" --dir "${DIR}" "$@"; }

# as USER ARGUMENT... runs kubectl.
as() { HOME="${DIR}" PATH="${PWD}/_output/bin:${PATH}" KUBECONFIG="${DIR}/$1.kubeconfig" kubectl "${@:2}"; }
admin() { as admin "$@"; }
alice() { as user-alice,team-a "$@"; }
approver() { as user-approver "$@"; }

# play USER ARGUMENT... shows the command, and runs it.
play() {
  printf '%s$ kubectl %s\n' "$1" "${*:2}"
  "$@"
}

step() {
  title="$1"
  printf '\n[%4ds] %s\n' "${SECONDS}" "${title}"
}

fail() {
  echo "$1" >&2
  exit 1
}

# contains TEXT PART... fails unless the text contains every part.
contains() {
  local part
  for part in "${@:2}"; do
    [[ $1 == *"${part}"* ]] || fail "\"${part}\" is missing in: $1"
  done
  echo "$1"
}

# eventually COMMAND... repeats a command for a minute until it succeeds.
eventually() {
  local out limit=$((SECONDS + 60))
  until out="$("$@" 2>&1)"; do
    ((SECONDS < limit)) || fail "${out}"
    sleep 0.2
  done
  echo "${out}"
}

# waits_for_approval NAMESPACE
waits_for_approval() { contains "$(admin get nsl "$1")" "${APPROVAL}"; }

still_closed() {
  [[ "$(admin get namespace shop -o 'jsonpath={.metadata.labels.nsinit\.dev/initializing}')" == true ]] || fail "the gate is open, but an initializer is pending"
}

# refused COMMAND... writes as alice. The gate has to refuse.
refused() {
  if message="$("$@" 2>&1)"; then
    fail "the gate admitted alice's write while the namespace is initializing"
  fi
  contains "${message}" "ValidatingAdmissionPolicy 'nsinit-gate'" 'namespace "shop" is being initialized' >/dev/null
}

# audited FILTER prints the result of a filter of jq for the writes that kube-apiserver has answered.
audited() { jq --raw-output --slurp "map(select(.stage == \"ResponseComplete\" and .objectRef)) | $1" "${DIR}/audit.log"; }

indices() { curl --silent --show-error --fail --cacert "${DIR}/pki/nsinit-ca.crt" --user "elastic:${PASSWORD}" "${logs}/_cat/indices"; }

end() {
  local code=$?
  [[ ${code} -eq 0 ]] || echo "FAILED: ${title}" >&2
  dev down
}

step "a control plane with nsinit starts"
dev down
rm -rf "${DIR}"/{etcd,nsinit-etcd,audit.log,*.log} # only the ports and identities of an earlier control plane are kept
trap end EXIT
dev up
dev kubeconfig alice team-a >/dev/null
dev kubeconfig approver >/dev/null

step "two initializers are registered"
for manifest in policy-population approval tenants; do
  admin apply --server-side -f "artifacts/examples/${manifest}.yaml" >/dev/null
done
contains "$(admin get namespaceinitializerconfigurations)" policy-population.nsinit.dev "${APPROVAL}"

step "the initializer policy-population starts; artifacts/deploy/base/policy-population.yaml has its rights"
dev start policy-population

step "alice, a tenant, creates a namespace, and cannot write into it"
[[ "$(alice auth can-i create namespaces)" == yes ]]
[[ "$(alice auth can-i create configmaps --namespace shop)" == yes ]]
[[ "$(alice auth can-i initialize namespaces 2>/dev/null)" == no ]]
[[ "$(alice auth can-i create rolebindings --namespace shop)" == no ]]
play alice create namespace shop
refused play alice --namespace shop create configmap early
echo "${message}"

step "it is closed, and its creator is recorded"
contains "$(alice get namespace shop -o 'jsonpath=initializing={.metadata.labels.nsinit\.dev/initializing} {.metadata.annotations}')" \
  initializing=true '"nsinit.dev/created-by":"alice"' team-a

step "policy-population has done its work"
eventually waits_for_approval shop >/dev/null
play admin get nsl shop
play admin --namespace shop get "${POPULATED[@]}" -o name
still_closed

step "alice still cannot write, and the error names the pending initializer"
for _ in {1..60}; do
  refused alice --namespace shop create configmap early
  [[ ${message} != *"initializer \"${APPROVAL}\""* ]] || break
  sleep 1
done
contains "${message#*denied request: }" "initializer \"${APPROVAL}\""

step "the second initializer can write"
admin --namespace shop create role approver --verb=create,get --resource=configmaps
admin --namespace shop create rolebinding approver --role=approver --user=approver
approver --namespace shop create configmap approval --from-literal=by=approver

step "Kubernetes' own controllers did their work"
eventually admin --namespace shop get configmap/kube-root-ca.crt serviceaccount/default -o name
still_closed

step "the conditions of the namespace name the pending initializer"
contains "$(alice get namespace shop -o 'jsonpath={range .status.conditions[*]}{.type}={.status}: {.message}{"\n"}{end}')" \
  Initializing=True Ready=False "${APPROVAL}"

step "the second initializer is done"
still_closed
play approver nsinit "done" shop "${APPROVAL}"

step "the namespace is Ready"
play admin wait --for=condition=Ready namespace/shop --timeout=60s # it needs list and watch, which alice may not use

step "alice writes"
eventually play alice --namespace shop create configmap first

step "the initializers had finished before alice wrote"
writes='map(select(.objectRef.namespace == "shop" and .objectRef.resource != "namespaces" and .responseStatus.code < 300))'
first="$(audited "${writes} | map(select(.user.username == \"alice\"))[0].stageTimestamp")"
for object in "${POPULATED[@]}"; do
  made="$(audited "${writes} | map(select(.user.username != \"alice\" and \"\\(.objectRef.resource)/\\(.objectRef.name)\" == \"${object}\"))[0].stageTimestamp")"
  [[ ${made} < ${first} ]] || fail "${object} was written at ${made}, alice's first object at ${first}"
  printf '%-30s written at %s, alice'\''s first object at %s\n' "${object}" "${made}" "${first}"
done

step "the gate refused no controller"
refusals='map(select(.responseStatus.message // "" | contains("nsinit-gate")).user.username)'
[[ "$(audited "${refusals} | any(startswith(\"system:\"))")" == false ]] || fail "the gate refused controllers"
[[ "$(audited "${refusals} | any(. == \"alice\")")" == true ]] || fail "the audit log shows no refusal of alice"
contains "$(audited "${writes}"' | map(.user.username | select(startswith("system:serviceaccount:kube-system:"))) | unique[]')" \
  root-ca-cert-publisher service-account-controller
if grep nsinit-gate "${DIR}/kube-controller-manager.log"; then
  fail "the log of kube-controller-manager mentions a refusal by the gate"
fi

step "a log store starts, and http-provisioner, which gives each namespace an index in it"
logs="https://localhost:$(jq .logstore "${DIR}/ports.json")"
dev start logstore
eventually indices
provisioner=vendor-hooks/http-provisioner/manifests
admin apply --server-side -f "${provisioner}/rbac.yaml" >/dev/null
admin --namespace nsinit-system create secret generic log-store --from-literal=username=elastic "--from-literal=password=${PASSWORD}" "--from-file=ca.crt=${DIR}/pki/nsinit-ca.crt"
sed "s|https://logs.example.com:9200|${logs}|" "${provisioner}/log-index.yaml" >"${DIR}/log-index.yaml"
dev start http-provisioner
eventually admin get namespaceinitializerconfiguration 20-log-index

step "with artifacts/early-writes, kubectl create of a namespace with its content waits until the namespace is open"
admin apply --server-side -k artifacts/early-writes >/dev/null
alice create -f artifacts/examples/namespace-with-content.yaml & # kubectl apply would get the namespace, which alice may not yet
applying=$!
eventually waits_for_approval bakery
sleep 3 # which the approver takes
approver nsinit "done" bakery "${APPROVAL}"
wait "${applying}"
admin --namespace bakery get configmap recipes

step "the namespace has its index"
contains "$(indices)" "\"index\":\"$(admin --namespace bakery get configmap log-index -o 'jsonpath={.data.index}')\"" '"owner":"bakery"'

step "the namespaces are deleted, with their NamespaceLifecycles and the index"
admin delete namespace shop bakery --timeout=60s
gone() {
  local left
  left="$(admin get nsl shop bakery --ignore-not-found)" && [[ -z ${left} && "$(indices)" == "[]" ]]
}
eventually gone

step "every step succeeded"
