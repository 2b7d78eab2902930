# `make` lists the targets. Each does its own set-up: a clone, git, make and Python 3.11 or newer are
# enough. Python packages go into .venv, the control plane into a cache outside the checkout.

KUBERNETES_VERSION ?= 1.36
export KUBERNETES_VERSION

# Tests start Python hundreds of times, and three processes read all tests: with bytecode on disk
# that is twice as fast.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/installed
RELEASE_STAMP := $(VENV)/installed-release

VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' kwok_operator/__init__.py)
IMG ?= kwok-operator:$(VERSION)
OVERLAY ?= default

# Tests mostly wait, so more of them run at once than there are cores. A cluster that is there
# already is one, and no two tests share it.
WORKERS ?= $(if $(KWOK_OPERATOR_TEST_KUBECONFIG),0,3)
RESULTS := build/test-results

# $(call tests,NAME,ARGUMENTS): a run of pytest; leaves NAME.xml, and prints the slowest tests.
tests = $(PYTHON) -m pytest --junitxml=$(RESULTS)/$(1).xml --durations=15 $(2)
# Its tests run in WORKERS processes, each file in one of them. One that dies ends the run: its
# tests would be waited for without an end.
many = $(call tests,$(1),-n $(WORKERS) --max-worker-restart=0 --dist loadfile --no-loadscope-reorder $(2))

# The steps of `make test` have an order, and share one machine: -j gains nothing.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

##@ Help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make TARGET [KUBERNETES_VERSION=1.36]" } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Set-up

.PHONY: venv
venv: $(STAMP) ## Create .venv and install the project and its tools for development there

$(STAMP): pyproject.toml constraints.txt
	@set -e; \
	good='import sys; sys.exit(sys.version_info < (3, 11))'; \
	if ! $(PYTHON) -c "$$good" 2>/dev/null || ! $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	  base=; \
	  for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	    if "$$each" -c "$$good" 2>/dev/null; then base=$$each; break; fi; \
	  done; \
	  if [ -z "$$base" ]; then \
	    echo "error: Python 3.11 or newer is needed, and neither python3 nor python3.11 to" \
	      "python3.14 is that" >&2; \
	    exit 1; \
	  fi; \
	  echo "creating $(VENV) with $$base ($$("$$base" --version))"; \
	  "$$base" -m venv --clear $(VENV); \
	fi; \
	echo "installing the project into $(VENV)"; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; \
	touch $@

.PHONY: tools
tools: venv ## Find, download or build Kubernetes, etcd and kwok (once; 7 minutes if built)
	$(PYTHON) -m kwok_operator.controlplane tools

##@ Run

.PHONY: demo
demo: venv ## Show the operator at work, on a cluster on this machine
	$(VENV)/bin/kwok-operator rehearse --demo --keep --output=build/demo \
	  $(if $(CLUSTER_AUTOSCALER),--binary=cluster-autoscaler=$(CLUSTER_AUTOSCALER:~/%=$(HOME)/%))

.PHONY: cluster-up
cluster-up: venv ## Create a cluster on this machine, and print how to use it
	$(PYTHON) -m kwok_operator.controlplane up

.PHONY: cluster-down
cluster-down: venv ## Delete that cluster, and that of the demo
	$(PYTHON) -m kwok_operator.controlplane down
	$(PYTHON) -m kwok_operator.controlplane down --name demo

##@ Check

# Memory for CPU: the API servers of the tests collect garbage less often, which saves a tenth.
test test-all e2e: export GOGC ?= 400

.PHONY: test
test: venv tools lint types ## Check style and types, run the unit tests and the core e2e tests
	$(call many,core,-m "core and not serial")

.PHONY: test-all
test-all: venv tools ## Run all other tests: the rest of e2e, faults, tests that need the whole machine
	$(PYTHON) -m kwok_operator.controlplane tools --set hack/tools/prometheus
	$(PYTHON) -m kwok_operator.controlplane tools --set hack/tools/metrics-server
	$(call many,rest,-m "not core and not serial" tests/e2e tests/chaos)
	$(call tests,serial,-m serial tests/e2e tests/chaos)

.PHONY: unit
unit: venv ## Run the unit tests
	$(call many,unit,-m "not serial" tests/unit)

.PHONY: e2e
e2e: venv tools ## Run the tests that need a control plane
	$(call many,e2e,-m "not serial" tests/e2e)

.PHONY: lint
lint: venv ## Check style, format, and which module imports which
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-cache

.PHONY: types
types: venv ## Check types
	$(VENV)/bin/mypy

.PHONY: chaos
chaos: venv tools ## Run the fault tests at full length (CHAOS_SEED=, CHAOS_MINUTES=, CHAOS_ARGS=)
	CHAOS_FULL=1 $(PYTHON) -m pytest -s --timeout=0 tests/chaos $(CHAOS_ARGS)

.PHONY: bench
bench: venv tools ## Measure time, memory and API calls, also of peers (CASES=, SIZES=, BENCH_ARGS=)
	$(PYTHON) -m tests.bench $(CASES) $(if $(SIZES),--sizes $(SIZES)) $(BENCH_ARGS)

##@ Ship

.PHONY: image
image: ## Build the image with docker or podman (IMG=kwok-operator:VERSION)
	@set -e; \
	engine=$$(command -v docker || command -v podman || true); \
	if [ -z "$$engine" ]; then \
	  echo "error: an image needs docker or podman, and neither is on PATH" >&2; exit 1; \
	fi; \
	if ! "$$engine" info >/dev/null 2>&1; then \
	  echo "error: $$engine is here, and its engine does not answer: start it" >&2; exit 1; \
	fi; \
	"$$engine" build --tag "$(IMG)" --build-arg VERSION="$(VERSION)" \
	  --build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null || echo unknown)" .

.PHONY: deploy
deploy: venv ## Install into the cluster of your kubeconfig (IMG=, OVERLAY=default)
	$(VENV)/bin/kwok-operator install --apply --overlay="$(OVERLAY)" --image="$(IMG)"

.PHONY: undeploy
undeploy: venv ## Remove all objects of `make deploy`, with all groups and their nodes
	$(VENV)/bin/kwok-operator uninstall --apply

.PHONY: dist
dist: $(RELEASE_STAMP) ## Build the wheel and the source distribution into dist/
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(PYTHON) -m build --outdir dist

.PHONY: sbom
sbom: $(RELEASE_STAMP) ## List the content of the image as CycloneDX JSON, in dist/
	@rm -rf build/runtime && mkdir -p build dist
	PYTHON=$(PYTHON) sh hack/image/build.sh build/runtime
	$(PYTHON) -m cyclonedx_py environment build/runtime/bin/python --pyproject pyproject.toml \
	  --output-reproducible --output-format JSON \
	  --output-file dist/kwok-operator-$(VERSION).cdx.json
	$(PYTHON) -m hack.vendored dist/kwok-operator-$(VERSION).cdx.json

.PHONY: audit
audit: $(RELEASE_STAMP) ## Check pins, licences and known vulnerabilities of the dependencies
	$(PYTHON) -m hack.audit --vulnerabilities

$(RELEASE_STAMP): $(STAMP)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,release]'
	touch $@

##@ Change

.PHONY: format
format: venv ## Format the code, and fix style problems
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

.PHONY: crds
crds: venv ## Write crds/ from the models
	$(PYTHON) -m kwok_operator.schema.crd
	{ echo "# Generated by \`make crds\`. Don't edit."; \
	  $(PYTHON) -m kwok_operator install --dry-run --clusterapi-crds; \
	} > deploy/components/clusterapi-crds/crds.yaml

.PHONY: manifests
manifests: venv tools ## Write kwok_operator/manifests/ from deploy/
	$(PYTHON) -m hack.manifests

.PHONY: protos
protos: venv ## Write the shim's protobuf modules from their .proto files
	$(PYTHON) -m hack.protos

.PHONY: clean
clean: ## Remove .venv and build files in the checkout (not the cache of control-plane tools)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
