# Targets with a double-hash comment are shown by `make help`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help install check test test-fast demo validate-evaluation bench-loss bench-table bench-index bench-data clean

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

validate-evaluation: $(READY) ## published weights against published numbers, on what is in ROOT (default data)
	$(BIN)/python -m cli.validate root=$(or $(ROOT),data)

bench-table: $(READY) ## what per-sample state costs: a nuclr step beside a clip step, memory, read and write
	$(BIN)/python -m tests.bench.table

bench-index: $(READY) ## start-up and memory of an index of 12.4M samples, speed of the scan
	$(BIN)/python -m tests.bench.index

bench-data: $(READY) ## images/s beside open_clip's pipeline; needs CLIPX_DATA
	$(BIN)/python -m tests.bench.data

bench-loss: $(READY) ## time and memory of every pairwise term against open_clip's ClipLoss
	$(BIN)/python -m tests.bench.loss

clean: ## removes caches of tools; runs and data stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
