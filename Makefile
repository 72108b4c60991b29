# `make demo` and `make test` set everything up by themselves; the rest is for development.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two cores are what the times in README are for; tests of speed and bit-identity want a fixed number of threads.
STAMP := $(VENV)/.installed

.PHONY: demo test test-full lint format clean

demo: $(STAMP)
	$(BIN)/twofold pretrain

test: lint
	$(BIN)/python -m pytest -m "not full"

test-full: lint
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
