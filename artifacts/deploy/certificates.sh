#!/usr/bin/env bash
# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes the certificates of nsinit's programs, and the authority that signs them, in the
# folder from-certificates.sh, from which kustomization.yaml reads them. An authority that
# is there is used again, so running it again renews the certificates alone: apply
# afterwards, and the programs take them without a restart.
#
# usage: certificates.sh [DAYS]    how long they are valid, 365 by default

set -o errexit -o nounset -o pipefail

readonly NAMESPACE=nsinit-system
readonly DAYS="${1:-365}"
readonly CA_DAYS=3650

if ! [[ ${DAYS} =~ ^[1-9][0-9]*$ ]] || ((DAYS > CA_DAYS)); then
  echo "usage: $0 [DAYS], with DAYS between 1 and ${CA_DAYS}" >&2
  exit 1
fi
if ! command -v openssl >/dev/null; then
  echo "openssl is missing: install it, or put ca.crt, and NAME.crt and NAME.key of nsinit-apiserver and nsinit-controller-manager, which ca.crt has signed, into $(dirname "$0")/from-certificates.sh yourself" >&2
  exit 1
fi

umask 077
DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)/from-certificates.sh"
mkdir -p "${DIR}"
cd "${DIR}"

new_key() {
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}

if [[ ! -s ca.crt || ! -s ca.key ]]; then
  new_key ca.key
  openssl req -x509 -new -key ca.key -sha256 -days "${CA_DAYS}" -subj "/CN=nsinit-ca" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" -out ca.crt
  echo "made the authority ${DIR}/ca.crt, valid for ${CA_DAYS} days: keep ca.key to renew certificates"
fi

for name in nsinit-apiserver nsinit-controller-manager; do
  new_key "${name}.key"
  openssl req -new -key "${name}.key" -subj "/CN=${name}.${NAMESPACE}.svc" -out "${name}.csr"
  openssl x509 -req -in "${name}.csr" -CA ca.crt -CAkey ca.key -sha256 -days "${DAYS}" -out "${name}.crt.new" 2>/dev/null \
    -extfile <(printf '%s\n' \
      "basicConstraints=critical,CA:FALSE" \
      "keyUsage=critical,digitalSignature" \
      "extendedKeyUsage=serverAuth" \
      "subjectAltName=DNS:${name}.${NAMESPACE}.svc,DNS:${name}.${NAMESPACE}.svc.cluster.local")
  openssl verify -CAfile ca.crt "${name}.crt.new" >/dev/null
  mv "${name}.crt.new" "${name}.crt"
  rm "${name}.csr"
  echo "made ${DIR}/${name}.crt, valid for ${DAYS} days"
done
