# Python to make the environment with: 3.11 or newer.
PYTHON ?= python3
# Where the environment is. `make test VENV=/tmp/other` uses another one and leaves .venv alone.
VENV ?= .venv

# How many processes run the tests.
JOBS ?= auto

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv demo test format zoo fuzz simulate figures bench-quick bench clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP)  ## Make the environment with everything in it; quick when up to date

# An environment that works is kept and brought up to date; one that was left half made is made again.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "pico needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)" >&2; \
	    echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "'$(PYTHON)' cannot make environments; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@if ! test -f $(VENV)/pyvenv.cfg; then $(PYTHON) -m venv $(VENV); \
	elif ! $(BIN)/python -m pip --version >/dev/null 2>&1; then $(PYTHON) -m venv --clear $(VENV); fi
	@echo "installing pico and its tools into $(VENV) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: venv  ## Show what pico does, in under two minutes
	@$(BIN)/python examples/demo.py

test: venv  ## Everything that must hold: format, lint, types, import contracts, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest --hypothesis-profile=ci --numprocesses=$(JOBS) --dist=worksteal

format: venv  ## Put the code into the form that `make test` asks for
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

zoo: venv  ## Plant every known fault and print how the conformance suite caught it
	@$(BIN)/pico zoo

# How long `make fuzz` attacks, over all attacks and backends.
SECONDS ?= 60

fuzz: venv  ## Attack every backend for SECONDS: kills, power cuts, damage, full disks, strange bytes
	@$(BIN)/python -m fuzz --seconds $(SECONDS)

# Which runs `make simulate` does: from the first number up to, but without, the second.
SEEDS ?= 0..20000

simulate: venv  ## Run the harness under the schedules, crashes and faults of SEEDS=A..B
	@$(BIN)/pico simulate --seeds $(SEEDS)

figures: venv  ## Measure every figure that is promised; fails if one falls short
	@$(BIN)/pico figures --dir build/figures

# asv writes what it knows of the machine into the home folder; it gets one of its own.
ASV = mkdir -p build/asv && HOME=$(CURDIR)/build/asv $(BIN)/asv
ASV_RUN = $(ASV) machine --yes --config asv_bench/asv.conf.json >/dev/null && \
	HOME=$(CURDIR)/build/asv $(BIN)/asv run --config asv_bench/asv.conf.json --python=same --show-stderr

bench-quick: $(BIN)/asv  ## Run each benchmark once, on the code as it is
	@$(ASV_RUN) --quick

bench: $(BIN)/asv  ## Run the benchmarks and keep the results under the current commit
	@$(ASV_RUN) --set-commit-hash="$$(git rev-parse HEAD)"

# Nothing else needs it, so that it is not among the tools of development.
$(BIN)/asv: | venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check 'asv>=0.6.4'
	@touch $@

clean:  ## Remove the environment and what the tools left behind
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
