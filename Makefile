# headrace: `make demo` shows it, `make test` checks it. Both set up all they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TEST_JOBS ?= auto

.DEFAULT_GOAL := help
.PHONY: help install demo test lint format bench campaign clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $@

install: $(READY)  ## create .venv, from which .venv/bin/headrace runs

demo: $(READY)  ## write, crash, recover, read and verify a log, and show what happened
	$(BIN)/python examples/crash_and_recover.py

test: $(READY)  ## run the whole test suite
	$(BIN)/python -m pytest -n $(TEST_JOBS)

lint: $(READY)  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## measure headrace beside its peers, in one run
	$(BIN)/python -m bench

campaign: $(READY)  ## the long crash and damage campaign (see docs/reliability.md)
	HEADRACE_CAMPAIGN=1 $(BIN)/python -m pytest -n $(TEST_JOBS) tests/crash

clean:  ## remove everything that was made
	rm -rf $(VENV) demo-data .mypy_cache .ruff_cache .hypothesis
