# `make` lists the targets. Each does its own set-up: a clone, git, make and Python 3.11 or newer are
# enough. Python packages go into .venv, the control plane into a cache outside the checkout.

KUBERNETES_VERSION ?= 1.36
export KUBERNETES_VERSION

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/installed

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
	$(PYTHON) -m hack.controlplane tools

##@ Run

.PHONY: demo
demo: venv ## Show the operator at work on a control plane of this machine
	$(PYTHON) -m hack.demo

.PHONY: cluster-up
cluster-up: venv ## Create a control plane on this machine, and say how to use it
	$(PYTHON) -m hack.controlplane up

.PHONY: cluster-down
cluster-down: venv ## Delete it
	$(PYTHON) -m hack.controlplane down

##@ Check

.PHONY: test
test: venv tools lint types ## Run every check and every test
	$(PYTHON) -m pytest

.PHONY: unit
unit: venv ## Run the unit tests
	$(PYTHON) -m pytest tests/unit

.PHONY: e2e
e2e: venv tools ## Run the tests that need a control plane
	$(PYTHON) -m pytest tests/e2e

.PHONY: lint
lint: venv ## Check style and format
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

.PHONY: types
types: venv ## Check types
	$(VENV)/bin/mypy

.PHONY: bench
bench: venv tools ## Measure time, memory and API calls beside the peers (CASES=, SIZES=, BENCH_ARGS=)
	$(PYTHON) -m tests.bench $(CASES) $(if $(SIZES),--sizes $(SIZES)) $(BENCH_ARGS)

##@ Change

.PHONY: format
format: venv ## Format the code, and fix what can be fixed
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

.PHONY: crds
crds: venv ## Write crds/ from the models
	$(PYTHON) -m kwok_operator.models.crd

.PHONY: protos
protos: venv ## Write the shim's protobuf modules from their .proto files
	$(PYTHON) -m hack.protos

.PHONY: clean
clean: ## Remove .venv and what tools left in the checkout (not the cache of control-plane tools)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
