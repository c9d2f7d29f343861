# Everything that one does with this repository. `make` alone lists it.
# Needed: Go, make; for the embedded mongod also python3 with pip and libcurl4.

GO      ?= go
# Tools are modules of tools/go.mod, so that a checkout is all that is needed.
TOOL    := $(GO) tool -modfile=$(CURDIR)/tools/go.mod
# goreleaser has other versions of the same modules, so it is not among them. Go checks its sums.
GORELEASER := $(GO) run github.com/goreleaser/goreleaser/v2@v2.15.1
GOTESTSUM := $(TOOL) gotestsum --format pkgname --format-hide-empty-pkg
# Tests of Kubernetes and compose files need the types of both: a module of its own.
MANIFESTS := deploy/manifests
# The packages that a reading passes through.
WRITE_PATH := ./pkg/telemetry/... ./internal/batch/... ./internal/ingest/... ./internal/journal/... ./internal/queue/... ./internal/store/... ./internal/read/...
ARGS    ?=
PKG     ?= ./...
BENCH   ?= .
FUZZTIME ?= 10s
COUNT   ?= 1
HOURS   ?= 8
IMAGE       ?= brim:latest
IMAGE_ARCH  ?= $(shell $(GO) env GOARCH)
# The packages whose tests depend on MongoDB's behaviour.
MONGO7_PKG  ?= ./cmd/brim ./deploy/mongodb ./examples ./internal/compact ./internal/doctor ./internal/mongod/... ./internal/queue ./internal/store/...
# The version of uPlot that is committed; a new one needs new checksums.
UPLOT       ?= 1.6.32
# The authorities that TLS trusts in the image are those of this machine.
AUTHORITIES ?= $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem))
FAULT_TESTS ?= FS|CRASH|DROP|MONGO|RACE|CAP|HOL|SEAL|ROLLUP|SET|TS|CLI|GEN|MOVE|POISON|MERGE|MQTT|WAVE|LOAD|PROTOCOL|HOSTILE|SCALE|AReader|DoctorSituations
FAULT_PKG   ?= ./internal/faulttest ./internal/journal ./internal/queue

.DEFAULT_GOAL := help

.PHONY: help
help: ## list what can be made
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## bin/brim
	$(GO) build -o bin/brim ./cmd/brim

.PHONY: run
run: build ## build and run the daemon with its own mongod; ARGS='--granularity 1h' passes flags
	@exec ./bin/brim serve $(ARGS)

.PHONY: demo
demo: build ## write latency as hourly buckets fill, with single and merged updates and a time-series collection, with plots in bin/demo.html; about a minute and a half
	@exec ./bin/brim bench fill --quick --cells 1h-single,1h-merged,1h-timeseries --report bin/demo.html $(ARGS)

.PHONY: test
test: ## all tests but the fault tests, in random order; what needs a program that is missing is skipped and listed; PKG=./internal/queue narrows it
	@$(GO) test -tags fault ./internal/crash
	@$(GOTESTSUM) -- -shuffle=on -timeout 20m $(ARGS) $(if $(filter ./...,$(PKG)),$$($(GO) list ./... | grep -v '/internal/faulttest$$'),$(PKG))

.PHONY: test-fault-short
test-fault-short: ## a short form of each fault test; two minutes
	@$(MAKE) --no-print-directory test PKG=./internal/faulttest

.PHONY: test-race
test-race: ## the packages that a reading passes through, under the race detector; needs a C compiler
	@$(GOTESTSUM) -- -race -shuffle=on -timeout 25m $(WRITE_PATH)

.PHONY: test-manifests
test-manifests: ## the Kubernetes and compose files, which have a module of their own
	@cd $(MANIFESTS) && $(GOTESTSUM) -- -shuffle=on -timeout 15m ./...

.PHONY: test-all
test-all: export BRIM_REQUIRE_MONGOD := 1
test-all: export BRIM_REQUIRE_PROMETHEUS := 1
test-all: export BRIM_REQUIRE_NGINX := 1
test-all: export BRIM_REQUIRE_SYSTEMD := 1
test-all: export BRIM_REQUIRE_NODE := 1
test-all: export BRIM_REQUIRE_MOSQUITTO := 1
test-all: export BRIM_PROMQL_ALL := 1
test-all: ## everything: race detector, Prometheus, nginx, systemd, Node.js, fuzzing, fault tests in full; over an hour
	$(MAKE) test ARGS=-race
	$(MAKE) test-fault-short ARGS=-race
	$(MAKE) test-manifests
	$(MAKE) check-dashboards
	$(MAKE) lint
	$(MAKE) fuzz
	$(MAKE) test-fault

.PHONY: test-mongo7
test-mongo7: ## tests of stores, commands, moves and doctor against MongoDB 7.0 under Wine, one at a time; 20 minutes; needs wine64; a test that fails is repeated, since that mongod sometimes hangs
	@mongod=$$(tools/mongo7/install) && \
	  BRIM_MONGOD_BIN=$$mongod BRIM_REQUIRE_MONGOD=1 $(GOTESTSUM) --rerun-fails=2 --packages='$(MONGO7_PKG)' -- -p 1 -parallel 1 -shuffle=on -timeout 40m $(ARGS)

.PHONY: test-fault
test-fault: ## all fault tests in full, an hour on an idle machine; their table goes into docs/durability.md
	@BRIM_FAULT_FULL=1 $(GO) test -json -count=1 -p 1 -timeout 2h -run '^Test($(FAULT_TESTS))' $(FAULT_PKG) | \
	  $(GO) run ./internal/faulttest/table --into docs/durability.md

.PHONY: sabotage
sabotage: ## remove each protection in turn and require that tests fail; NAMES='guard fence' or PKG=./internal/queue for some, ARGS=-short leaves out tests that run daemons
	@$(GO) run ./internal/sabotage -package $(PKG) $(ARGS) $(NAMES)

.PHONY: soak
soak: build ## run the daemon for HOURS=8 (at least 0.1) under load and faults; writes plots to bin/soak.html
	@$(GO) run ./internal/faulttest/soak --hours $(HOURS) --page bin/soak.html $(ARGS)

.PHONY: simulate
simulate: ## simulate the write path: SEEDS=10000 seeds from FIRST=1; SEED=4711 runs one and prints its trace
	@if [ -n "$(SEED)" ]; then BRIM_SEED=$(SEED) $(GO) test -count=1 -run '^TestSeeds$$' ./internal/simulate; \
	else BRIM_SEEDS=$(or $(SEEDS),10000) BRIM_FIRST_SEED=$(or $(FIRST),1) $(GO) test -count=1 -timeout 2h -run '^TestSeeds$$' ./internal/simulate; fi

.PHONY: uplot
uplot: ## fetch uPlot, which draws the charts of the live page and the reports, and check it against internal/chart/uplot/SHA256SUMS; needs npm
	@rm -rf bin/uplot && mkdir -p bin/uplot && cd bin/uplot && npm pack --silent uplot@$(UPLOT) >/dev/null && tar -xzf uplot-$(UPLOT).tgz --strip-components=1
	@cp bin/uplot/dist/uPlot.iife.min.js bin/uplot/dist/uPlot.min.css bin/uplot/LICENSE internal/chart/uplot/
	@cd internal/chart/uplot && sha256sum --check --quiet SHA256SUMS

.PHONY: lint
lint: ## golangci-lint, go vet and gofmt, as .golangci.yml says
	$(GO) vet ./...
	$(GO) vet -tags fault ./cmd/brim ./internal/crash
	$(TOOL) golangci-lint run ./...

.PHONY: fmt
fmt: ## format all Go files
	$(TOOL) golangci-lint fmt ./...

.PHONY: bench
bench: build ## how fast Brim is beside raw inserts into the same mongod, as a table; ARGS='--cells lines --repeats 1' for less
	@exec ./bin/brim bench speed $(ARGS)

.PHONY: claims
claims: build ## all experiments in their short form, 10 minutes on a quiet machine; their claims go into docs/experiments.md
	@./bin/brim bench all --quick > bin/experiments.md
	@awk 'FNR == NR { if (on) table = table $$0 "\n"; on = on || /^## All experiments/; next } \
	  /^<!-- claims: end/ { inside = 0 } !inside { print } /^<!-- claims: begin/ { inside = 1; printf "%s", table }' \
	  bin/experiments.md docs/experiments.md > bin/experiments-page.md
	@cp bin/experiments-page.md docs/experiments.md

.PHONY: microbench
microbench: ## Go benchmarks, in the form that benchstat compares; BENCH=Decode, PKG=./internal/ingest, COUNT=6
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(PKG)

# Go 1.26 may report the end of -fuzztime as a failure (go.dev/issue/75804): the message is
# "context deadline exceeded", and no failing input is written. That case is ignored.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s) each
	@set -e; out=$$(mktemp); trap 'rm -f "$$out"' EXIT; for pkg in $$($(GO) list $(PKG)); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; failed=; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$pkg >"$$out" 2>&1 || failed=1; \
	    cat "$$out"; \
	    if [ -n "$$failed" ]; then \
	      grep -qx '    context deadline exceeded' "$$out" || exit 1; \
	      if grep -qE 'Failing input|panic:|_test\.go:' "$$out"; then exit 1; fi; \
	    fi; \
	  done; \
	done

.PHONY: api-test
api-test: build ## a running daemon's answers against openapi.yaml, for a minute; brings schemathesis; SEED=1 repeats
	@tools/schemathesis/run.sh bin/brim 60 $(SEED)

.PHONY: check-dashboards
check-dashboards: ## the Grafana dashboards against the types of Grafana's schema, which npm brings; needs node
	@tools/grafana/run.sh

.PHONY: generate
generate: ## Go code from the .proto files, dashboards, alerts; needs protoc 3.21 (Debian: protobuf-compiler)
	$(GO) generate ./...
	rule=deploy/kubernetes/monitoring/prometheusrule.yaml; { sed '/^spec:/q' $$rule; sed -n '/^groups:/,$$p' deploy/prometheus/alerts.yml | sed 's/^./  &/'; } >$$rule.new && mv $$rule.new $$rule

# Without a remote, goreleaser would not read the commit. Any will do, since nothing is published.
.PHONY: release
release: ## archives for Linux, macOS and Windows with their checksums, in dist/; VERSION=v1.2.0, PLATFORMS=linux_arm64,windows_amd64
	@mkdir -p bin && sed '$(if $(PLATFORMS),s/ targets:.*/ targets: [$(PLATFORMS)]/)' .goreleaser.yaml >bin/goreleaser.yaml
	@GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=. $(GORELEASER) release --snapshot --clean --config bin/goreleaser.yaml $(ARGS)

.PHONY: docker
docker: ## the container image, without the network; IMAGE=brim:latest, IMAGE_ARCH=arm64, STAMP='VERSION REVISION DATE'
	@test -n "$(AUTHORITIES)" || { echo "no certificates of authorities are found; name their file: make docker AUTHORITIES=FILE" >&2; exit 1; }
	@mkdir -p bin/docker/data
	@cp "$(AUTHORITIES)" bin/docker/ca-certificates.crt
	CGO_ENABLED=0 GOOS=linux GOARCH=$(IMAGE_ARCH) $(GO) build -trimpath -ldflags "-s -w -X 'main.stamp=$(STAMP)'" -o bin/docker/brim ./cmd/brim
	docker build --platform linux/$(IMAGE_ARCH) --target local --tag $(IMAGE) --file deploy/docker/Dockerfile .

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
