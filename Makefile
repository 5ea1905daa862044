# `make demo` and `make test` do all the set-up on a machine that has only Python, make and a package index.
# Another Python: `make test PYTHON=python3.12`. Other options for pytest: `make test PYTEST="-k runs"`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= 2
PYTEST ?=
BEFORE ?= main

ifneq ($(wildcard ../shared/data),)
export TRANSENCODER_DATA ?= $(abspath ../shared/data)
endif

.PHONY: help demo test check check-lowest check-newest golden format lint types imports docs wheel clean

help:
	@echo "make demo    train on the shipped questions, in one to three minutes, and show what came out"
	@echo "make test    run the tests"
	@echo "make check   what CI runs: format, lint, types, one-way imports, tests"
	@echo "make check-lowest, make check-newest  tests with the lowest versions that are allowed, with the newest there are"
	@echo "make golden  compare what two commits compute: make golden BEFORE=main"
	@echo "make format  format the code and mend what can be mended"
	@echo "make docs    build the docs site into build/site/"
	@echo "make wheel   build the wheel into dist/"

demo: $(INSTALLED)
	$(BIN)/transencoder demo

# One thread for each worker: two busy libraries on the same cores slow each other down. Each begins with half of the
# tests in their order, which then share what a file's fixtures made.
test: export OMP_NUM_THREADS ?= 1
test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST)

check: lint types imports test

# Environments of their own; torch is the tested one, and what the tests alone need is as it is.
check-lowest: PINS := -c constraints-lowest.txt
check-lowest check-newest:
	$(PYTHON) -m venv build/$@
	build/$@/bin/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	build/$@/bin/python -m pip install --quiet --upgrade $(PINS) $$(grep '^torch==' constraints.txt) \
	    -e '.[demo,export,lora]' beartype hypothesis import-linter polars psutil pytest pytest-xdist
	OMP_NUM_THREADS=1 build/$@/bin/python -m pytest -n $(WORKERS) --dist worksteal \
	    tests/encoders tests/fit tests/losses tests/methods tests/pairs tests/search tests/test_*.py $(PYTEST)

golden: $(INSTALLED)
	$(BIN)/python tools/golden.py $(BEFORE)

lint: $(INSTALLED)
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Strict: a link that leads nowhere, or a page that is in no menu, is an error.
docs: $(INSTALLED)
	$(BIN)/mkdocs build --strict
	@echo "open build/site/index.html; to search in it: $(BIN)/mkdocs serve"

wheel: $(INSTALLED)
	$(BIN)/python -m build --wheel

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# Torch comes first and alone: its constraint picks a small CPU build where one is at hand.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[demo,dev,export,mteb]'
	@touch $@
