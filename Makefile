# Needs Python 3.10 or newer and a C compiler called cc; everything else goes into .venv.
#
#   make test ARGS="-k matmul"      more arguments for pytest, the demo or the benchmarks
#   make test PYTHON=python3.12     another interpreter for a new .venv
#   make setup PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#                                   the CPU build of torch, a tenth of the download

PYTHON   ?= python3
ARGS     ?=
PIP_ARGS ?=

BIN := .venv/bin
PIP  = $(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS)

# A stamp is newer than pyproject.toml as long as .venv holds what it asks for.
BASE := .venv/.stamp-base
DEV  := .venv/.stamp-dev
BENCH := .venv/.stamp-bench
LLM := .venv/.stamp-llm
SERVE := .venv/.stamp-serve

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo chat serve test test-all test-pythons bench lint format wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(DEV) ## install the package and the development tools into .venv

demo: $(BASE) ## run the demonstration (installs the base package only)
	$(BIN)/python -m pyflame demo $(ARGS)

chat: $(LLM) ## talk to a small language model (fetched once); ARGS="-m model.gguf" takes another
	$(BIN)/python -m pyflame chat $(ARGS)

serve: $(SERVE) ## serve a small language model on http://127.0.0.1:8000; ARGS="-m model.gguf" takes another
	$(BIN)/python -m pyflame serve $(ARGS)

test: WHICH = $(if $(ARGS),,-m 'not thorough')
test: test-all ## run the tests on two workers, of alike and slow ones a share; with ARGS all that these choose

# Hundreds of tests start programs: without compiled files each of these would compile all of the package.
test-all: export PYTHONDONTWRITEBYTECODE =
test-all: $(DEV) ## run also the tests that cost minutes and rarely find anything
	$(if $(ARGS),,$(BIN)/python -m tests.warm $(if $(WHICH),,--all))
	$(BIN)/python -m pytest -n 2 --dist worksteal $(WHICH) $(ARGS)

test-pythons: | $(BIN)/pip ## run the tests that need no torch on the other Pythons of this machine (ARGS="3.10 3.13")
	$(BIN)/python tools/test_pythons.py $(ARGS)

bench: $(BENCH) ## run the benchmarks beside torch, jax and onnxruntime
	$(BIN)/python -m benchmarks $(ARGS)

lint: $(DEV) ## check style, formatting, types and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(DEV) ## fix what can be fixed and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(BASE) $(BIN)/pyproject-build ## build the source archive and the wheel, with compiled CPU kernels, into dist/
	rm -rf dist build/prebuilt
	$(BIN)/python tools/prebuild.py build/prebuilt
	$(BIN)/pyproject-build --sdist --wheel
	$(BIN)/python -m zipfile -l dist/*.whl

clean: ## remove caches and build outputs (`rm -rf .venv` to set up anew)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The target is pip rather than python: where venv fails half-way (Debian without python3-venv) only python exists.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "PyFlame needs Python 3.10 or newer; name one with PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv

$(BASE): pyproject.toml | $(BIN)/pip
	$(PIP) -e .
	@touch $@

$(LLM): pyproject.toml | $(BIN)/pip
	$(PIP) -e '.[llm]'
	@touch $(BASE) $@

$(SERVE): pyproject.toml | $(BIN)/pip
	$(PIP) -e '.[serve]'
	@touch $(BASE) $(LLM) $@

$(DEV): pyproject.toml | $(BIN)/pip
	$(PIP) -e '.[dev]'
	@touch $(BASE) $@

$(BIN)/pyproject-build: | $(BIN)/pip
	$(PIP) build

$(BENCH): $(DEV)
	$(PIP) -e '.[dev,bench]'
	@touch $(BASE) $(DEV) $@
