# Targets with a double-hash comment are shown by `make help`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# a process a core; each has one thread, or they would wait for each other
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

.PHONY: help install check test test-fast test-dist demo validate-evaluation bench-loss bench-eval bench-table bench-index bench-data chaos clean
.PHONY: reproduce-mini-clip-reg reproduce-mini-counting reproduce-mini-gap reproduce-mini-nuclr reproduce-mini-wpse
.PHONY: reproduce-clip-reg reproduce-counting reproduce-gap reproduce-nuclr reproduce-wpse bench-wpse bench-train bench-leak
.PHONY: reproduce-mini reproduce-all
.PHONY: docs

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

docs: $(READY) ## README, docs/ and an API reference as HTML in site/; no network when opened
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: $(READY) ## all tests; CLIPX_DATA=FOLDER adds those on real data
	$(PYTEST)

test-fast: $(READY) ## tests without the slow ones
	$(PYTEST) -m 'not slow'

test-dist: $(READY) ## every term on 1, 2 and 4 processes and micro-batches; all tests on several processes
	$(BIN)/pytest tests/clipx/training/test_step_distributed.py tests/clipx/training/test_step.py tests/clipx/training/test_leak.py tests/clipx/test_train_table.py

demo: $(READY) ## train, evaluate and report in a few minutes on two cores; again: resumes, or says that it is done
	$(BIN)/clipx train recipe=demo
	$(BIN)/clipx eval checkpoint=runs/demo/s0
	$(BIN)/clipx report runs/demo

# Every arm and seed, then a report and the verdicts; called again, finished runs are skipped. DRY=1 lists the runs with
# their cost and does nothing, JOBS=N does N at a time, SET="key=value ..." changes settings of all.
REPRODUCE = $(BIN)/clipx reproduce $(if $(DRY),dry=true) $(SET)
first = $(if $(DRY),,$(foreach name,$(1),$(BIN)/clipx theory $(name) &&)) # before the runs, seconds each
mini = $(REPRODUCE) jobs=$(or $(JOBS),2) recipe=
# a paper's training data lie where the user says: $(call folder,CC3M)
folder = $(or $($(1)),$(if $(DRY),$(1),$(error say where the data are: make $@ $(1)=FOLDER)))
cc3m = cc3m=$(call folder,CC3M)
cc12m = cc12m=$(call folder,CC12M)
mscoco = mscoco=$(call folder,MSCOCO)
datacomp = datacomp_small=$(call folder,DATACOMP)
objects = $(if $(DRY),,$(BIN)/clipx report missing-objects $(call folder,MSCOCO)/annotations &&)

reproduce-mini-clip-reg: $(READY) ## paper 1 on rendered scenes
	$(call first,margin) $(mini)clip_reg_mini,margin_mini

reproduce-mini-counting: $(READY) ## paper 2 on rendered scenes
	$(call first,robust_g true_negatives) $(mini)counting_mini

reproduce-mini-nuclr: $(READY) ## paper 3 on rendered scenes
	$(call first,popularity) $(mini)nuclr_mini

reproduce-mini-gap: $(READY) ## paper 4 on rendered scenes
	$(call first,gap_flow) $(mini)gap_mini,gap_dynamics_mini,gap_init_mini

reproduce-mini-wpse: $(READY) ## paper 5 on rendered scenes
	$(call first,pmi) $(mini)wpse_mini

# the longest runs first: at the end no core waits for long
MINI = wpse_mini,clip_reg_mini,margin_mini,nuclr_mini,counting_mini,gap_mini,gap_dynamics_mini,gap_init_mini
reproduce-mini: $(READY) ## all five papers on rendered scenes, one report: 2 to 3 hours on two cores, 24 GB of disk
	$(call first,all) $(mini)$(MINI) out=runs/mini-report

reproduce-clip-reg: $(READY) ## paper 1 at its scale; CC3M=DIR MSCOCO=DIR
	$(call first,margin) $(objects) $(REPRODUCE) recipe=clip_reg_cc3m,margin_mscoco $(cc3m) $(mscoco)

reproduce-counting: $(READY) ## paper 2 at its scale; DATACOMP=DIR
	$(call first,robust_g true_negatives) $(REPRODUCE) recipe=counting_datacomp $(datacomp)

reproduce-nuclr: $(READY) ## paper 3 at its scale; CC3M=DIR CC12M=DIR
	$(call first,popularity) $(REPRODUCE) recipe=nuclr_cc3m,nuclr_cc12m $(cc3m) $(cc12m)

reproduce-gap: $(READY) ## paper 4 at its scale; MSCOCO=DIR
	$(call first,gap_flow) $(REPRODUCE) recipe=gap_mscoco,gap_dynamics_mscoco,gap_init_mscoco $(mscoco)

reproduce-wpse: $(READY) ## paper 5 at its scale; CC3M=DIR CC12M=DIR
	$(call first,pmi) $(REPRODUCE) recipe=wpse_cc3m,wpse_cc12m $(cc3m) $(cc12m)

FULL = clip_reg_cc3m,margin_mscoco,counting_datacomp,nuclr_cc3m,nuclr_cc12m,gap_mscoco,gap_dynamics_mscoco,gap_init_mscoco
reproduce-all: $(READY) ## all five papers at their scale, one report; CC3M=DIR CC12M=DIR MSCOCO=DIR DATACOMP=DIR
	$(call first,all) $(objects) $(REPRODUCE) recipe=$(FULL),wpse_cc3m,wpse_cc12m \
	  $(cc3m) $(cc12m) $(mscoco) $(datacomp) out=runs/all-report

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

bench-train: $(READY) ## images/s of training beside open_clip's own script; on a GPU the share of its bf16 peak too
	$(BIN)/python -m tests.bench.train

bench-leak: $(READY) ## growth of memory and of time per step over 2,000 steps
	$(BIN)/python -m tests.bench.leak

bench-wpse: $(READY) ## a training step of point sets beside CLIP's on the same towers: time and memory
	$(BIN)/python -m tests.bench.wpse

bench-eval: $(READY) ## evaluation beside scikit-learn and clip-benchmark: time and memory; on an idle machine
	$(BIN)/python -m tests.bench.evaluation

chaos: $(READY) ## 20 random kills of a run on two processes, whose weights must not differ by a bit; SEED=N repeats
	$(BIN)/python -m tests.bench.chaos $(or $(KILLS),20) $(SEED)

clean: ## removes caches of tools; runs and data stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
