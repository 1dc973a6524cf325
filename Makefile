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

RECORD ?=
.PHONY: demo
demo: dev ## Play the life of a namespace on a real control plane, and check each step. RECORD is the picture to draw of it.
	@hack/install-system-packages.sh test
	@$(if $(RECORD),go run ./hack/recording --output $(RECORD),) hack/demo.sh

.PHONY: dev-up
dev-up: dev ## Start a control plane with nsinit in the background.
	@$(DEV) up

.PHONY: dev-down
dev-down: dev ## Stop the control plane of dev-up.
	@$(DEV) down

# The names of the tests to run, as a regular expression; the seed of their order and of random tests; and the number of control
# planes that they use at the same time, of 1 GB each.
RUN ?=
TEST ?=
SEED ?= 0
PLANES ?=
KUBERNETES := $(sort $(notdir $(wildcard hack/dev/kubernetes/v*)))
# Of the older versions, make test-all uses the oldest one: the others have the policies of this one, or of the newest one.
VERSIONS ?= $(filter-out $(lastword $(KUBERNETES)),$(KUBERNETES))
test-all: VERSIONS = $(firstword $(KUBERNETES))
TESTS = hack/test.sh $@ --run='$(value RUN)$(value TEST)' --seed=$(SEED) $(if $(PLANES),--planes=$(PLANES)) --versions='$(VERSIONS)'

.PHONY: test
test: ## Test the behaviour of nsinit: unit, faults-slice and e2e.
	@$(TESTS)

.PHONY: test-all
test-all: ## Run test, packaging, and test-versions on the oldest version.
	@$(TESTS)

.PHONY: test-quick
test-quick: ## Run the checks and the unit tests that take seconds.
	@hack/install-system-packages.sh test verify
	@hack/verify.sh --quick
	@$(TESTS) --short

.PHONY: unit
unit: ## Run the tests that need no control plane, or those that match RUN.
	@$(TESTS)

.PHONY: faults-slice
faults-slice: ## Run a slice of the fault campaign.
	@$(TESTS)

.PHONY: e2e
e2e: ## Run the end-to-end tests of behaviour, or those that match RUN, on PLANES control planes.
	@$(TESTS)

.PHONY: packaging
packaging: ## Run the tests of packaging and tools, or those that match RUN.
	@$(TESTS)

.PHONY: test-versions
test-versions: ## Run the end-to-end tests that depend on Kubernetes on each of VERSIONS.
	@$(TESTS)

COUNT ?= 10
.PHONY: stress
stress: ## Repeat the tests that match TEST, by default those of make test, COUNT times on a busy machine.
	@$(TESTS) --stress=$(COUNT)

FAULTS ?=
EARLIER ?=
.PHONY: faults
faults: build failpoints ## Run or resume the fault campaign, and write docs/reliability.md. FAULTS are its flags. EARLIER is a commit for the faults with two versions.
	@$(if $(EARLIER),hack/build-earlier.sh $(EARLIER) $(OUTPUT)/bin-earlier)
	@$(DEV) build kube-scheduler
	@echo "==> fault campaign"
	@go build -o $(OUTPUT)/bin/faults ./test/faults
	@$(OUTPUT)/bin/faults run --dir test/faults/results --bin-dir $(OUTPUT)/bin-failpoints --failpoints $(if $(EARLIER),--earlier-dir $(OUTPUT)/bin-earlier) --planes 2 $(FAULTS)
	@$(OUTPUT)/bin/faults report

BUG ?=
.PHONY: faults-bug
faults-bug: build ## Make the bug BUG of test/faults/seeded, or all, and require that its test and its fault find it.
	@$(DEV) build kube-scheduler
	@go build -o $(OUTPUT)/bin/faults ./test/faults
	@$(OUTPUT)/bin/faults seeded --campaign --only '^($(or $(value BUG),.*))$$'

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

REPAIRS ?=
.PHONY: perf-repairs
perf-repairs: build ## Measure how long repairs take during a change of a population, with the flags in REPAIRS.
	@cd test/perf && go build -o $(OUTPUT)/bin/perf .
	@$(OUTPUT)/bin/perf repairs $(REPAIRS)

.PHONY: perf-memory
perf-memory: build ## Measure the memory of the programs while a tenant creates the largest namespaces.
	@cd test/perf && go build -o $(OUTPUT)/bin/perf .
	@$(OUTPUT)/bin/perf memory

.PHONY: perf-access
perf-access: build ## Measure lists and watches of the namespaces of 1,000 users.
	@cd test/perf && go build -o $(OUTPUT)/bin/perf .
	@$(OUTPUT)/bin/perf access

LARGE ?=
.PHONY: perf-large
perf-large: build ## Measure what happens in a cluster with 10,000 namespaces, with the flags in LARGE.
	@cd test/perf && go build -o $(OUTPUT)/bin/perf .
	@$(OUTPUT)/bin/perf large $(LARGE)

.PHONY: bench
bench: ## Run the benchmarks.
	@go test -run '^$$' -bench . -benchmem ./...
	@go -C sdk test -run '^$$' -bench . -benchmem ./...

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME.
	@FUZZTIME=$(FUZZTIME) hack/fuzz.sh

.PHONY: generate
generate: ## Generate code, manifests and docs.
	@hack/install-system-packages.sh verify
	@hack/update-codegen.sh

.PHONY: verify
verify: ## Check generated code, licences, headers, dependencies, manifests, scripts and the documentation site, and lint.
	@hack/install-system-packages.sh verify
	@hack/verify.sh

.PHONY: site
site: ## Build the documentation site into _output/site, and check its links.
	@hack/install-system-packages.sh verify
	@hack/site.sh
	@echo "open _output/site/index.html in a browser; it needs no server"

.PHONY: dashboards
dashboards: ## Record the metrics of a healthy and of a failing control plane, and draw the pictures of the dashboard.
	@hack/dashboards.sh

.PHONY: lint
lint: ## Lint the code and the prose.
	@hack/install-system-packages.sh verify
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
