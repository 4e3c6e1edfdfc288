# Targets with a double-hash comment are shown by `make help`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help install check test test-fast demo bench-eval clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(READY) ## the virtual environment in .venv; every other target does it too

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

check: $(READY) ## lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: $(READY) ## all tests; CLIPX_DATA=FOLDER adds those on real data
	$(BIN)/pytest

test-fast: $(READY) ## tests without the slow ones
	$(BIN)/pytest -m 'not slow'

demo: $(READY) ## train, evaluate and report in a few minutes on two cores; again: resumes, or says that it is done
	$(BIN)/clipx train recipe=demo
	$(BIN)/clipx eval checkpoint=runs/demo/s0
	$(BIN)/clipx report runs/demo

bench-eval: $(READY) ## evaluation beside scikit-learn and clip-benchmark: time and memory; on an idle machine
	$(BIN)/python -m tests.bench.evaluation

clean: ## removes caches of tools; runs and data stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
