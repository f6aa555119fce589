# headrace: `make demo` shows it, `make test` checks it. Both set up all they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TEST_JOBS ?= auto

.DEFAULT_GOAL := help
.PHONY: help install java peers demo test lint format bench campaign clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $@

install: $(READY)  ## create .venv, from which .venv/bin/headrace runs

# Spark runs on Java, which pip does not bring: Debian does, if there is none.
java:
	@command -v java >/dev/null || { \
	  echo "Spark needs Java: installing default-jre-headless from Debian's packages"; \
	  SUDO=$$([ $$(id -u) = 0 ] || echo sudo); \
	  { $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends default-jre-headless; } >/dev/null || \
	  { echo "there is no java, and it could not be installed: install Java 17 or later, then try again" >&2; exit 1; }; }

demo: $(READY) java  ## crash and recover a log, join and aggregate streams on Spark, and show what happened
	$(BIN)/python examples/demo

test: $(READY) java  ## run the whole test suite
	$(BIN)/python -m pytest -n $(TEST_JOBS)

lint: $(READY)  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Three of the peers of the benchmarks are servers, which pip does not bring. Without them, they are left out.
peers:
	@for program in beanstalkd redis-server nats-server; do command -v $$program >/dev/null || { \
	  echo "installing $$program from Debian's packages, to measure beside it"; \
	  SUDO=$$([ $$(id -u) = 0 ] || echo sudo); \
	  { $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends $$program; } >/dev/null || \
	  echo "$$program could not be installed: the benchmarks leave it out" >&2; }; done

bench: $(READY) java peers  ## measure headrace beside its peers, in one run
	$(BIN)/python -m bench

campaign: $(READY) java  ## the long crash and damage campaigns (see docs/reliability.md)
	HEADRACE_CAMPAIGN=1 $(BIN)/python -m pytest -n $(TEST_JOBS) tests/crash tests/journal tests/log/test_tail.py tests/server tests/client tests/conformance tests/spark tests/docs/test_examples.py

clean:  ## remove everything that was made
	rm -rf $(VENV) demo-data .mypy_cache .ruff_cache .hypothesis
