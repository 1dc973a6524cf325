# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

# One image with the programs that run in a cluster, nothing else: manifests choose by
# command. docker build -t nsinit:dev .

ARG GO_VERSION=1.26
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=v0.1.0-dev
WORKDIR /src
COPY go.mod go.sum ./
COPY cmd cmd
COPY pkg pkg
COPY vendor-hooks vendor-hooks
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=${VERSION}" \
      -o /out/ ./cmd/nsinit-apiserver ./cmd/nsinit-controller-manager ./vendor-hooks/policy-population ./vendor-hooks/http-provisioner

FROM scratch
COPY --from=build /out/ /
USER 65532:65532
