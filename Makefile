# Each target does its own set-up in a fresh clone: it needs Python 3.11 or newer, make and gcc.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-all test-gpu test-versions coverage docs lint types clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/nestedvi demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# Without the slow tests (whole experiments, whole answers), so that it stays a matter of minutes on two cores.
test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not slow'

test-all: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile

# On a machine with a GPU, in the Python that has a JAX for it: it sets nothing up, tests of extras that are missing are
# skipped, and the log is a result.
test-gpu:
	$(PYTHON) tools/gpu_tests.py --log results/gpu/test.log

# The built package in empty environments: lowest versions, and newest ones under every Python here. Needs a package index.
test-versions: $(STAMP)
	$(BIN)/python tools/versions.py

# Runs the tutorials whose script changed, then builds the site into site/; a warning is an error.
docs: $(STAMP)
	$(BIN)/python tools/tutorials.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Measuring costs a quarter of the suite's time, so it is a command of its own.
coverage: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term

clean:
	rm -rf $(VENV) site .coverage .pytest_cache .ruff_cache .mypy_cache
