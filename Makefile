# Three commands matter: `make lab1`, `make test` and `make test-matrix`. They need only Python 3.11 or 3.12 and an index.
.DEFAULT_GOAL := help
SHELL := bash

VENV ?= .venv
# The first Python that fits; set PYTHON=/path/to/python to choose.
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))
PYTHON ?= $(shell for p in python3 python3.12 python3.11 python; do \
	$$p -c '$(FITS)' 2>/dev/null && { echo $$p; break; }; done)
OUT ?= runs/$(firstword $(filter lab% rnn_ps methods memory,$(MAKECMDGOALS)) lab1)-$(shell date +%Y%m%d-%H%M%S)
OUT := $(OUT)
# Where it is set, as in many container images, every process compiles PyTorch and MindSpore again.
export PYTHONDONTWRITEBYTECODE :=
PIP = $(VENV)/bin/python -m pip install --quiet
TOX = $(VENV)/bin/python .ci/tox.py
# Two environments at a time, each in one process (0: pytest's own): what only one core can do (starting sessions,
# building pages, waiting) leaves the other one to the neighbour.
WHOLE_MATRIX = DUALML_TEST_PROCESSES=0 $(TOX) run-parallel -p 2 --parallel-live --parallel-no-spinner

.PHONY: help lab1 lab2 lab3 lab4 rnn_ps methods memory test test-fast test-matrix test-all durations faults golden lint types bench notebooks ports reports students gauntlet gpu gpu-wheels docs docs-links gallery clean

help:  ## this list
	@sed -n 's/^\([a-z0-9_-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

lab1: $(VENV)/.labs  ## run Lab 1 on PyTorch and MindSpore and write its report (ARGS="--quick")
lab2: $(VENV)/.labs  ## the same for Lab 2, collectives and several ranks; half an hour without --quick
lab3: $(VENV)/.labs  ## the same for Lab 3, data parallel training and partitions
lab4: $(VENV)/.labs  ## the same for Lab 4, models split by layer, inside layers and as pipelines
rnn_ps: $(VENV)/.labs  ## a language model whose tables of words live on a parameter server
methods: $(VENV)/.labs  ## the table of methods: one task, many training methods, on both frameworks
memory: $(VENV)/.labs  ## what training holds of a rank's memory, and what it costs to hold less
lab1 lab2 lab3 lab4 rnn_ps methods memory:
	@$(VENV)/bin/dualml run $@ --backend both --out '$(OUT)' $(ARGS); code=$$?; \
	if [ -f '$(OUT)/report.html' ]; then echo "report: $(OUT)/report.html"; fi; exit $$code

test: $(VENV)/.all  ## every test that needs no process, and one of each kind that does (ARGS="core -- -k resume")
	@$(VENV)/bin/python -m tests $(ARGS)

test-fast: $(VENV)/.all  ## of these the core's files that take a second and a half at most
	@$(VENV)/bin/python -m tests --fast $(ARGS)

test-matrix: $(VENV)/.tox  ## the tests that make test leaves out, in an environment for each framework and tool (tox)
	@$(if $(ARGS),$(TOX) run $(ARGS),$(WHOLE_MATRIX))

test-all: $(VENV)/.all $(VENV)/.tox  ## all of them, with what takes long and proves little beyond it
	@code=0; $(VENV)/bin/python -m tests -- --slow || code=$$?; $(TOX) run -- --slow || code=$$?; exit $$code

durations: $(VENV)/bin/python  ## seconds of the test files in the sessions that make test and tox recorded (ARGS="--update")
	@$(VENV)/bin/python -m tests.tiers $(ARGS)

faults: $(VENV)/.all  ## plant faults in core and backends, one at a time; every one must be caught
	@$(VENV)/bin/python -m tests.faults $(ARGS)

golden: $(VENV)/.all  ## small runs of every lab, held against what was recorded of them
	@$(VENV)/bin/python -m tests.golden check $(ARGS)

lint: $(VENV)/.tox  ## ruff: rules and format; import-linter: what may import what
	@$(TOX) run -e lint

types: $(VENV)/.tox  ## mypy, strict, on the core
	@$(TOX) run -e types

docs: $(VENV)/.docs  ## the documentation site, English and Chinese, into build/docs
	@$(VENV)/bin/python docs/make.py $(ARGS)

docs-links: $(VENV)/.docs  ## follow the links of the documentation that lead to the web
	@$(VENV)/bin/python docs/make.py --links

gallery: $(VENV)/.all  ## run the labs and record them for `dualml demo` and the site (ARGS="lab1"); needs Chromium
	@$(VENV)/bin/python docs/gallery.py $(ARGS)

bench: $(VENV)/.all  ## ratios against loops written by hand, in one run (ARGS="--quick")
	@$(VENV)/bin/python benchmarks/run.py $(ARGS)

notebooks: $(VENV)/.examples  ## execute the labs' notebooks, in both languages, into build/notebooks/ (ARGS="lab1 --lang en")
	@$(VENV)/bin/python examples/notebooks/build.py $(ARGS)

ports: $(VENV)/.all  ## wrong and right ports of users' models: how often are verdict and cause right (ARGS="--half held-out")
	@$(VENV)/bin/python benchmarks/ports/run.py $(ARGS)

reports: $(VENV)/.all  ## public bug reports as small cases: how often are verdict and cause right (ARGS="--half held-out")
	@$(VENV)/bin/python benchmarks/reports/run.py $(ARGS)

students: $(VENV)/.all  ## solutions that students hand in: what `dualml check` detects and names (ARGS="--half held-out")
	@$(VENV)/bin/python benchmarks/students/run.py $(ARGS)

gauntlet: $(VENV)/.tox  ## models of PyTorch's zoos against other people's ports, in an environment of its own (ARGS="--only resnet18")
	@$(TOX) run -e gauntlet $(if $(ARGS),-- $(ARGS))

gpu:  ## measure PyTorch on a GPU from this source tree, without a network, into docs/gpu.md
	@'$(or $(PYTHON),python3)' benchmarks/gpu.py $(ARGS)

gpu-wheels:  ## download the packages that a GPU machine without a network may lack
	@'$(or $(PYTHON),python3)' benchmarks/gpu.py wheels

clean:  ## remove what these commands made, except runs/
	rm -rf '$(VENV)' .tox build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@if [ -z '$(PYTHON)' ]; then \
		echo "dualml needs Python 3.11 or 3.12; found $$(python3 --version 2>&1)." \
			"Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; fi
	@'$(PYTHON)' -c '$(FITS)' || { echo "dualml needs Python 3.11 or 3.12; PYTHON=$(PYTHON) is" \
		"$$('$(PYTHON)' --version 2>&1)" >&2; exit 2; }
	@mkdir -p '$(dir $(VENV))' 2>/dev/null; [ -w '$(dir $(VENV))' ] || { echo "cannot write to" \
		"$$(realpath '$(dir $(VENV))'): put the environment elsewhere with make" \
		"VENV=/path/to/venv $(MAKECMDGOALS)" >&2; exit 2; }
	@'$(PYTHON)' -m venv '$(VENV)' || { rm -rf '$(VENV)'; echo "cannot make a virtual environment:" \
		"on Debian and Ubuntu install python3-venv" >&2; exit 2; }

# A stamp per set of packages, so that nothing is installed twice. What only tests need comes with `make test`.
$(VENV)/.labs: pyproject.toml | $(VENV)/bin/python
	@echo "installing dualml with PyTorch and MindSpore into $(VENV): 1.2 GB to download, 4 GB on" \
		"disk, two to five minutes with a fast network"
	@$(PIP) uv 2>/dev/null || true
	@$(VENV)/bin/python .ci/install.py --editable '.[all]'
	@touch '$@'

$(VENV)/.all: pyproject.toml | $(VENV)/.labs
	@$(VENV)/bin/python .ci/install.py --editable '.[all,test]'
	@touch '$@'

$(VENV)/.examples: pyproject.toml | $(VENV)/.all
	@$(VENV)/bin/python .ci/install.py --editable '.[examples,test]'
	@touch '$@'

# The core and Sphinx; no framework.
$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	@$(PIP) --editable '.[docs]'
	@touch '$@'

$(VENV)/.tox: | $(VENV)/bin/python
	@$(PIP) 'tox>=4.20' tox-uv || $(PIP) 'tox>=4.20'
	@touch '$@'
