# Everything a contributor types. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
SEEDS ?= 3000
LOCK_FLAGS ?=
PYTEST_FLAGS ?=

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-header --no-emit-index-url \
	--no-config $(LOCK_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help setup test lint check format demo sim-soak sim-bugs bench lock clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Make .venv with the locked dependencies and shoal itself.

# An interrupted setup leaves no stamp, so the next run starts over.
$(STAMP): pyproject.toml requirements/runtime.lock requirements/dev.lock
	@rm -f $(STAMP)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation -e .
	@touch $(STAMP)

lock: setup ## Write requirements/*.lock anew; LOCK_FLAGS=--upgrade takes new versions.
	$(COMPILE) pyproject.toml -o requirements/runtime.lock
	$(COMPILE) pyproject.toml --group dev -c requirements/runtime.lock \
		-o requirements/dev.lock
