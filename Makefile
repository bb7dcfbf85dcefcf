# Two commands do everything on a fresh machine: `make demo` and `make test`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Most tests wait for servers: three at a time take half as long. A file stays in one process.
SPREAD := --numprocesses 3 --dist loadfile
INPUTS := constraints.txt requirements-dev.txt protocol/pyproject.toml engine/pyproject.toml workers/pyproject.toml

.PHONY: help setup demo test test-all unit integration check lint types contracts tidy generate bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv and install everything, versions pinned by constraints.txt

$(STAMP): $(INPUTS)
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt -e ./protocol -e ./workers -e './engine[dev]'
	@touch $@

demo: setup ## the main job, on embedded NATS and Postgres (ORDERS=FILE takes another input)
	$(BIN)/python deploy/demo/run.py $(if $(ORDERS),--orders $(ORDERS))

test: check unit integration ## what CI runs: check, unit and integration tests on embedded servers

unit: setup
	$(BIN)/pytest $(SPREAD) tests/unit tests/packaging tests/typing -m 'not slow'

integration: setup
	$(BIN)/pytest $(SPREAD) tests/contract tests/integration tests/e2e -m 'not slow'

test-all: test ## everything, with the long suites: chaos, garbage, properties at full size, the demo
	$(BIN)/pytest tests -m slow

check: lint types contracts tidy ## format, lint, types, import contracts, tidy test
	@$(BIN)/python tools/counts.py

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/pyright

contracts: setup
	$(BIN)/lint-imports --no-cache

tidy: setup
	$(BIN)/pytest tests/tidy

generate: setup ## write the generated files again (schemas, AsyncAPI, state machines)
	$(BIN)/python tools/generate.py

bench: setup ## W1 and W2, reported and not asserted
	$(BIN)/python deploy/bench/run.py

clean: ## remove what the other targets made
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .towpath dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
