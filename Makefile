# Copyright The nsinit Authors.
# SPDX-License-Identifier: Apache-2.0

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The same flags for every build, so that nothing is compiled twice.
export GOFLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0
export GOTOOLCHAIN := local

OUTPUT := $(CURDIR)/_output
DEV := $(OUTPUT)/bin/dev

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: dev
dev:
	@mkdir -p $(OUTPUT)/bin
	@go build -o $(DEV) ./hack/dev

.PHONY: build
build: dev ## Build every program into _output/bin, including those of Kubernetes.
	@$(DEV) build

.PHONY: failpoints
failpoints: ## Build nsinit's programs with failpoints into _output/bin-failpoints.
	@hack/build-failpoints.sh $(OUTPUT)/bin-failpoints

.PHONY: run
run: dev ## Run a control plane with nsinit in the foreground, until Ctrl-C.
	@$(DEV) run

.PHONY: demo
demo: dev ## Play the life of a namespace on a real control plane, and check each step.
	@hack/install-system-packages.sh
	@$(DEV) --dir $(OUTPUT)/demo demo

.PHONY: dev-up
dev-up: dev ## Start a control plane with nsinit in the background.
	@$(DEV) up

.PHONY: dev-down
dev-down: dev ## Stop the control plane of dev-up.
	@$(DEV) down

.PHONY: test-quick
test-quick: ## Run the checks and the unit tests that take seconds.
	@hack/install-system-packages.sh
	@hack/verify.sh --quick
	@echo "==> quick unit tests"
	@hack/test.sh quick hack/unit.sh -short

# The tests, and the programs that they start, spend memory instead of time on garbage collection.
test-quick unit e2e: export GOGC := 600

.PHONY: unit
unit: ## Run the tests that need no control plane.
	@hack/install-system-packages.sh
	@echo "==> unit tests"
	@hack/test.sh unit hack/unit.sh

RUN ?= .
# The tests use this number of control planes at the same time. Each takes about half a processor, and 2 GB.
PLANES ?= 4
.PHONY: e2e
e2e: dev ## Run the end-to-end tests, or those that match RUN, on PLANES control planes.
	@hack/install-system-packages.sh
	@echo "==> end-to-end tests"
	@hack/e2e.sh '$(RUN)' '$(PLANES)'

# The tests that depend on kube-apiserver: admission, audit, requests through the aggregation layer, and the
# installation.
VERSIONS ?= v1.34 v1.35 v1.36
.PHONY: test-versions
test-versions: ## Run the end-to-end tests that depend on kube-apiserver on each of VERSIONS.
	@for version in $(VERSIONS); do \
	  echo "==> Kubernetes $$version"; \
	  NSINIT_DEV_KUBERNETES=$$version $(MAKE) --no-print-directory e2e \
	    RUN='^(TestStamp|TestStampAgain|TestStampIdentity|TestGate|TestGateMessage|TestGateNamesakes|TestGuard.*|TestOpenedByHand|TestEmptiedOnce|TestExemptions.*|TestWithoutExemptions|TestRecordCannotBePreset|TestStory|TestFailure|TestParticipant|TestNameReuse|TestAudit|TestApplyJustWorks|TestEarlyWrites|TestPopulation|TestSystemControllersMayInitialize|TestSecurityMatrix|TestWhyInitializing|TestPluginCheck|TestInstallation|TestLeastPrivilege|TestClusterAdmission|TestDecisions.*|TestContentIsKept|TestFreeze|TestConfinement)$$'; \
	done

FAULTS ?=
.PHONY: faults
faults: build failpoints ## Run or resume the fault campaign, and write docs/reliability.md. FAULTS are its flags.
	@echo "==> fault campaign"
	@go build -o $(OUTPUT)/bin/faults ./test/faults
	@$(OUTPUT)/bin/faults run --dir $(OUTPUT)/faults --bin-dir $(OUTPUT)/bin-failpoints --failpoints --planes 2 $(FAULTS)
	@$(OUTPUT)/bin/faults report --dir $(OUTPUT)/faults

.PHONY: faults-slice
faults-slice: build ## Run a slice of the fault campaign.
	@echo "==> a slice of the fault campaign"
	@go build -o $(OUTPUT)/bin/faults ./test/faults
	@$(OUTPUT)/bin/faults slice --dir $(OUTPUT)/faults

.PHONY: test
test: ## Run every test.
	@hack/install-system-packages.sh
	@$(MAKE) --no-print-directory --jobs=2 unit faults-slice e2e

PERF ?=
.PHONY: perf
perf: build ## Measure what nsinit costs, or go on with it, and write docs/performance.md. With PERF, the flags, only measure.
	@echo "==> performance measurements"
	@cd test/perf && go build -o $(OUTPUT)/bin/perf .
	@$(OUTPUT)/bin/perf run --dir $(OUTPUT)/perf $(PERF)
ifeq ($(PERF),)
	@$(OUTPUT)/bin/perf report --dir $(OUTPUT)/perf --output docs/performance.md
endif

CONTENT ?=
.PHONY: perf-content
perf-content: build ## Measure what it costs to keep the content of deleted namespaces, with the flags in CONTENT.
	@cd test/perf && go build -o $(OUTPUT)/bin/perf .
	@$(OUTPUT)/bin/perf content $(CONTENT)

.PHONY: bench
bench: ## Run the benchmarks.
	@go test -run '^$$' -bench . -benchmem ./...

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME.
	@FUZZTIME=$(FUZZTIME) hack/fuzz.sh

.PHONY: generate
generate: ## Generate code, manifests and docs.
	@hack/install-system-packages.sh
	@hack/update-codegen.sh

.PHONY: verify
verify: ## Check generated code, licences, headers, dependencies, manifests, scripts and the documentation site, and lint.
	@hack/install-system-packages.sh
	@hack/verify.sh

.PHONY: site
site: ## Build the documentation site into _output/site, and check its links.
	@hack/install-system-packages.sh
	@hack/site.sh
	@echo "open _output/site/index.html in a browser; it needs no server"

.PHONY: dashboards
dashboards: ## Record the metrics of a healthy and of a failing control plane, and draw the pictures of the dashboard.
	@hack/dashboards.sh

.PHONY: lint
lint: ## Lint the code and the prose.
	@hack/install-system-packages.sh
	@hack/lint.sh

.PHONY: release
release: ## Build a release, such as VERSION=v0.1.0, for each platform into _output/release.
	@hack/release.sh

.PHONY: image
image: ## Build the container image.
	@docker build --build-arg VERSION=$(VERSION) -t nsinit:$(or $(VERSION),dev) .

.PHONY: clean
clean: ## Stop every control plane and remove all build output.
	@if [ -x $(DEV) ]; then for dir in $(OUTPUT)/dev* $(OUTPUT)/e2e* $(OUTPUT)/demo; do [ ! -d $$dir ] || $(DEV) --dir $$dir down; done; fi
	@rm -rf $(OUTPUT)
