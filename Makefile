# Needs python3 (3.11 or later) and make.  Everything else is installed into .venv in this folder.
#
#   make demo            the first result
#   make test            all that needs no cluster of processes: minutes; `make test ARGS="-k stale"` for a part of it
#   make test-cluster    runs on real clusters, and every program and command of the README and the examples
#   make test-faults     processes that are killed and stopped, the search for faults, planted bugs
#   make test-browser    the dashboard in a real browser
#   make test-all        all of these, as before a change lands
#   make lint types

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
STAMP := .venv/installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := install
.PHONY: install demo test test-cluster test-faults test-browser test-all lint types clean

install: $(STAMP)

# Setuptools comes first and the build runs without isolation: an isolated build would fetch its own, unpinned tools.
$(STAMP): pyproject.toml constraints.txt psplatform/tensors/fused.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "psplatform needs Python 3.11 or later; name one, as in: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable '.[dev,transformers]'
	touch $@

demo: install
	$(BIN)/psplatform demo

PYTEST := $(BIN)/pytest --durations 10
BY_TWO := $(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder
CLUSTER := tests/bench tests/client tests/cluster tests/docs tests/examples
FAULTS := tests/chaos tests/mutants tests/simulation/faults
BROWSER := tests/browser

test: install
	$(BY_TWO) $(addprefix --ignore=,$(CLUSTER) $(FAULTS) $(BROWSER)) $(ARGS)

test-cluster: install
	$(BY_TWO) $(CLUSTER) $(ARGS)

test-faults: install
	$(BY_TWO) $(FAULTS) $(ARGS)

# One after the other, with nothing beside them: each is a cluster, a dashboard and a browser that draws by the processor,
# and a browser gives up what it loads when the network interfaces of other tests' hosts come or go.
test-browser: install
	$(PYTEST) $(BROWSER) $(ARGS)

test-all: install
	$(BY_TWO) --ignore=$(BROWSER) $(ARGS) || [ $$? -eq 5 ]  # 5: ARGS, which are options, leave none of these
	$(PYTEST) $(BROWSER) $(ARGS) || [ $$? -eq 5 ]

lint: install
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

clean:
	rm -rf .venv build dist psplatform.egg-info htmlcov .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
