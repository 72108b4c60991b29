# Each target creates .venv first, if it is not there.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two processes of one thread each. The tests of a file run in one process, since they share fixtures.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

EXTRAS ?= .venv-extras
EXTRA_PACKAGES := dev,timm,pretrained,heif,tiff,parquet,onnx,tensorboard

.PHONY: demo docs test test-full test-extras torture lint format clean

demo: $(STAMP)
	$(BIN)/twofold pretrain

# The site is build/docs/index.html. Warnings are errors.
docs: $(STAMP)
	$(BIN)/python -m sphinx --builder html --fresh-env --fail-on-warning --keep-going --quiet docs build/docs

test: lint
	$(PYTEST) -m "not full"

test-full: lint
	$(PYTEST) --hypothesis-profile=search

# The tests that need optional packages, in a virtual environment of their own that has these packages.
test-extras: $(EXTRAS)/.installed
	TWOFOLD_TEST_EXTRAS=1 OMP_NUM_THREADS=1 $(EXTRAS)/bin/python -m pytest -n 2 --dist loadfile -m extras

$(EXTRAS)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(EXTRAS)
	$(EXTRAS)/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[$(EXTRA_PACKAGES)]"
	touch $@

# Kills, flipped bits, power losses and changed files for a given time; see docs/reliability.md.
MINUTES ?= 60
torture: $(STAMP)
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m torture --minutes $(MINUTES)

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
	rm -rf $(VENV) $(EXTRAS) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
