# Targets with a double-hash comment are shown by `make help`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help install check test test-fast demo validate-evaluation bench-loss bench-eval bench-table bench-index bench-data chaos clean
.PHONY: reproduce-mini-clip-reg reproduce-mini-counting reproduce-mini-gap reproduce-mini-nuclr reproduce-mini-wpse
.PHONY: reproduce-clip-reg reproduce-counting reproduce-gap reproduce-nuclr reproduce-wpse bench-wpse

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

# Every arm and seed, then a report and the verdicts; called again, finished runs are skipped. DRY=1 lists the runs,
# JOBS=N does N at a time, SET="key=value ..." changes settings of all.
REPRODUCE = $(BIN)/clipx reproduce $(if $(DRY),dry=true) $(SET)
THEORY = $(BIN)/clipx theory
mini = $(REPRODUCE) jobs=$(or $(JOBS),2) recipe=
# a paper's training data lie where the user says: $(call folder,CC3M)
folder = $(or $($(1)),$(error say where the data are: make $@ $(1)=FOLDER))

reproduce-mini-clip-reg: $(READY) ## paper 1 on rendered scenes
	$(THEORY) margin
	$(mini)clip_reg_mini,margin_mini

reproduce-mini-counting: $(READY) ## paper 2 on rendered scenes
	$(THEORY) robust_g && $(THEORY) true_negatives
	$(mini)counting_mini

reproduce-mini-nuclr: $(READY) ## paper 3 on rendered scenes
	$(THEORY) popularity
	$(mini)nuclr_mini

reproduce-mini-gap: $(READY) ## paper 4 on rendered scenes
	$(THEORY) gap_flow
	$(mini)gap_mini,gap_dynamics_mini,gap_init_mini

reproduce-mini-wpse: $(READY) ## paper 5 on rendered scenes
	$(THEORY) pmi
	$(mini)wpse_mini

reproduce-clip-reg: $(READY) ## paper 1 at its scale; CC3M=DIR MSCOCO=DIR
	$(THEORY) margin
	$(BIN)/clipx report missing-objects $(call folder,MSCOCO)/annotations
	$(REPRODUCE) recipe=clip_reg_cc3m data.root=$(call folder,CC3M); first=$$?; \
	$(REPRODUCE) recipe=margin_mscoco data.root=$(call folder,MSCOCO) && exit $$first

reproduce-counting: $(READY) ## paper 2 at its scale; DATACOMP=DIR
	$(THEORY) robust_g && $(THEORY) true_negatives
	$(REPRODUCE) recipe=counting_datacomp data.root=$(call folder,DATACOMP)

reproduce-nuclr: $(READY) ## paper 3 at its scale; CC3M=DIR CC12M=DIR
	$(THEORY) popularity
	$(REPRODUCE) recipe=nuclr_cc3m data.root=$(call folder,CC3M); first=$$?; \
	$(REPRODUCE) recipe=nuclr_cc12m data.root=$(call folder,CC12M) && exit $$first

reproduce-gap: $(READY) ## paper 4 at its scale; MSCOCO=DIR
	$(THEORY) gap_flow
	$(REPRODUCE) recipe=gap_mscoco,gap_dynamics_mscoco,gap_init_mscoco data.root=$(call folder,MSCOCO)

reproduce-wpse: $(READY) ## paper 5 at its scale; CC3M=DIR CC12M=DIR
	$(THEORY) pmi
	$(REPRODUCE) recipe=wpse_cc3m data.root=$(call folder,CC3M); first=$$?; \
	$(REPRODUCE) recipe=wpse_cc12m data.root=$(call folder,CC12M) && exit $$first

# its exit code 3: nothing was here to be checked
validate-evaluation: $(READY) ## published weights against published numbers, on what is in ROOT (default data)
	$(BIN)/python -m cli.validate root=$(or $(ROOT),data) || [ $$? -eq 3 ]

bench-table: $(READY) ## what per-sample state costs: a nuclr step beside a clip step, memory, read and write
	$(BIN)/python -m tests.bench.table

bench-index: $(READY) ## start-up and memory of an index of 12.4M samples, speed of the scan
	$(BIN)/python -m tests.bench.index

bench-data: $(READY) ## images/s beside open_clip's pipeline; needs CLIPX_DATA
	$(BIN)/python -m tests.bench.data

bench-loss: $(READY) ## time and memory of every pairwise term against open_clip's ClipLoss
	$(BIN)/python -m tests.bench.loss

bench-wpse: $(READY) ## a training step of point sets beside CLIP's on the same towers: time and memory
	$(BIN)/python -m tests.bench.wpse

bench-eval: $(READY) ## evaluation beside scikit-learn and clip-benchmark: time and memory; on an idle machine
	$(BIN)/python -m tests.bench.evaluation

chaos: $(READY) ## 20 random kills of a run on two processes, whose weights must not differ by a bit; SEED=N repeats
	$(BIN)/python -m tests.chaos $(or $(KILLS),20) $(SEED)

clean: ## removes caches of tools; runs and data stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
