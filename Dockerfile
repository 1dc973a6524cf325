# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# One image with the programs that run in a cluster, nothing else: manifests choose by
# command. docker build -t nsinit:dev .

ARG GO_VERSION=1.26
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
ARG TARGETOS
ARG TARGETARCH
# Such as v0.1.0. Without it, that of the source.
ARG VERSION
WORKDIR /src
COPY go.mod go.sum ./
COPY sdk sdk
COPY cmd cmd
COPY pkg pkg
COPY artifacts artifacts
COPY vendor-hooks vendor-hooks
COPY hack/build.sh hack/build.sh
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=${TARGETOS} GOARCH=${TARGETARCH} hack/build.sh /out \
      ./cmd/nsinit-apiserver ./cmd/nsinit-controller-manager ./cmd/policy-population ./vendor-hooks/http-provisioner

FROM scratch
# For http-provisioner, where the Secret of a server names no CA.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /
USER 65532:65532
