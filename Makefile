# Needs python3 (3.11 or later) and make.  Everything else is installed into .venv in this folder.
#
#   make demo      the first result
#   make test      the whole suite; `make test ARGS="-k stale"` for a part of it
#   make lint types

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
STAMP := .venv/installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := install
.PHONY: install demo test lint types clean

install: $(STAMP)

# Setuptools comes first and the build runs without isolation: an isolated build would fetch its own, unpinned tools.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "psplatform needs Python 3.11 or later; name one, as in: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable '.[dev,transformers]'
	touch $@

demo: install
	$(BIN)/psplatform demo

test: install
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: install
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

clean:
	rm -rf .venv build dist psplatform.egg-info htmlcov .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
