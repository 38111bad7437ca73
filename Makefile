# The verbs of the project. `make demo` and `make test` do the whole set-up themselves.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export REEF_CACHE ?= $(HOME)/.cache/reef
PYTHON := .venv/bin/python

.PHONY: help setup demo test unit check format bench faults soak up down

help:  ## Say what each verb does.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## Make everything that runs here: environments, Kafka, lakeFS, the engine, the models. Seconds when done before.
	@deploy/setup.sh

demo: setup  ## Show what the system does, with every part real.
	@$(PYTHON) -m deploy.demo

test: setup check  ## Run every test that this machine can run, with the real services.
	@HYPOTHESIS_PROFILE=thorough $(PYTHON) -m pytest -m "not gpu and not faults"

unit:  ## Run the tests that need no service: under a minute.
	@$(PYTHON) -m pytest -q tests/unit

check:  ## Lint, types, contracts between packages. Never writes.
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy .
	@.venv/bin/lint-imports
	@.venv/bin/yamllint -s deploy

format:  ## Lay the code out as `check` wants it.
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

bench: setup  ## Measure speed, as ratios of one run.
	@$(PYTHON) -m tests.bench

faults: setup  ## Kill everything, hundreds of times; takes long.
	@$(PYTHON) -m pytest -m faults

soak: setup  ## Half an hour of the whole loop, then 100,000 calls to the gateway: memory must stay flat.
	@$(PYTHON) -m tests.bench.bench_soak 30
	@$(PYTHON) -m tests.bench.bench_memory 100000 1000

up: setup  ## Start Kafka, lakeFS and the engine.
	@.venv/bin/reef stack up

down:  ## Stop what `make up` started.
	@.venv/bin/reef stack down
