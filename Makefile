# Everything a contributor types. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
REWRITTEN := $(VENV)/.rewritten
SEEDS ?= 3000
FRAMES ?= 1000000
MINUTES ?= 10
ROUNDS ?= 1
WORKERS ?= 6
HALF ?= 25
SEED ?=
TORCH := torch==2.13.0
LOCK_FLAGS ?=
PYTEST_FLAGS ?=

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-header --no-emit-index-url \
	--no-config --overrides requirements/overrides.txt $(LOCK_FLAGS)

# Tests start hundreds of processes; each would compile all of shoal anew where the
# environment forbids to write down what was compiled.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup generate test test-integrations lint check format demo sim-demo attack integration soak fuzz sim-soak sim-bugs sim-showcase bench peers stubs docs site wheel lock clean all server worker submit monitor

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Create .venv with the locked dependencies and shoal itself.

# An interrupted setup leaves no stamp, so the next run starts over. The lock names
# all there is, so pip looks for no more; it would refuse requirements/overrides.txt.
$(STAMP): pyproject.toml requirements/runtime.lock requirements/dev.lock \
		requirements/train.lock
	@rm -f $(STAMP)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --require-hashes -r requirements/train.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation -e .
	@touch $(STAMP)

# pytest rewrites each assertion when it loads a test. Done once, before the workers
# start, it takes them half as long to load the tests. Two processes share it.
$(REWRITTEN): $(STAMP) $(shell find tests -name '*.py' -not -name '.*')
	@$(BIN)/pytest --collect-only -q -m "not soak" tests/unit >/dev/null & \
		$(BIN)/pytest --collect-only -q -m "not soak" \
		$(filter-out tests/unit/ tests/__pycache__/,$(wildcard tests/*/)) >/dev/null && \
		wait $$!
	@touch $@

test: setup $(REWRITTEN) ## Run the tests; PYTEST_FLAGS adds options, such as "-k worker".
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not soak" $(PYTEST_FLAGS)

integration: setup ## Run the tests with real processes, sockets and disks.
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "integration and not soak" $(PYTEST_FLAGS)

soak: setup ## Kill and freeze live nodes, at every failpoint and at random; MINUTES=10, SEED=n.
	@$(BIN)/python -m tests.integration.soak --minutes $(MINUTES) --rounds $(ROUNDS) \
		--half $(HALF) $(if $(SEED),--seed $(SEED))
	@$(BIN)/pytest -n 1 -m soak --ignore=tests/integration/test_crashes.py

# Callbacks for other libraries and sinks of metrics, with the real ones. They are 400 MB,
# so that `make setup` leaves them out: docs/decisions/0045-frameworks.md.
test-integrations: setup ## Install transformers, lightning and others, and test with them.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --require-hashes -r requirements/integrations.lock
	@$(BIN)/pytest -n 2 -m "not soak" tests/runtime/test_train_frameworks.py \
		tests/runtime/test_metric_sinks.py tests/integration/test_libraries.py \
		tests/integration/test_snakemake.py $(PYTEST_FLAGS)

lint: setup ## Check format, style, layers and types.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --output-sync -j 2 pyright mypy imports

# Each is one process that uses one core, so two of them run at a time.
.PHONY: pyright mypy imports
pyright:
	$(BIN)/pyright
mypy:
	$(BIN)/mypy --strict
imports:
	$(BIN)/lint-imports --no-logo

check: lint test ## What CI runs: lint, then test.

format: setup ## Format the code and apply safe fixes.
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

demo: setup ## Three real nodes train, alone and together, and get killed on the way.
	@$(BIN)/python demo/demo.py

sim-demo: setup ## Watch a small simulated shoal run jobs through faults.
	@$(BIN)/python -m shoal.sim.demo

attack: setup ## Run all attacks against real nodes; ONLY=text selects some.
	@$(BIN)/python -m attacks $(if $(ONLY),--only "$(ONLY)")

# Targets of the original training scheduler.

all: setup generate ## Set up, and compile the proto.

generate: stubs ## Same as stubs.

server: setup ## Run a scheduler on port 50051.
	@$(BIN)/shoal server --port=50051 --policy=balanced

worker: setup ## Run a worker with two declared GPUs, for the local scheduler.
	@$(BIN)/shoal worker --scheduler=localhost:50051 --gpus=0,1 \
		--models=RTX3090,RTX3090 --memories=24576,24576

submit: setup ## Submit a training job to the local scheduler.
	@$(BIN)/shoal submit --scheduler=localhost:50051 --config=examples/sample_task.json

monitor: setup ## Watch the local scheduler.
	@$(BIN)/shoal monitor --scheduler=localhost:50051 --refresh=1

fuzz: setup ## Fuzz every decoder with FRAMES=1000000 mutated frames; SEED=n repeats a run.
	@$(BIN)/python -W ignore -m tests.property.fuzz --frames $(FRAMES) \
		$(if $(SEED),--seed $(SEED))

sim-soak: setup ## Simulate SEEDS=3000 worlds with faults, and check every promise.
	@$(BIN)/python -m shoal.sim.soak --seeds $(SEEDS)

sim-bugs: setup ## Plant known bugs one by one; the simulator must find each.
	@$(BIN)/python -m tests.sim.planted --record

sim-showcase: setup ## Simulate eight competing schedulers, and ten thousand listeners.
	@$(BIN)/python -m shoal.sim.showcase

bench: setup ## Run every benchmark; results are JSON lines on stdout.
	@set -e; for file in $(filter-out benchmarks/peers.py,$(sort $(wildcard benchmarks/*.py))); do \
		$(BIN)/python $$file; done

peers: setup ## Compare with Ray, Dask, Parsl and HyperQueue; takes 15 minutes.
	@$(BIN)/python benchmarks/peers.py --write

stubs: setup ## Compile src/shoal/api/shoal.proto; a test compares the result.
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src \
		src/shoal/api/shoal.proto

docs: setup ## Generate docs/reference from commands and schema; a test compares it.
	@$(BIN)/python -m reference docs/reference

# Not `-q`: it would hide the warnings that `--strict` turns into errors.
site: setup ## Build the docs site into build/site; dead links are errors.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: setup ## Build the source distribution and the wheel into dist.
	@$(BIN)/python -m hatchling build

lock: setup ## Regenerate requirements/*.lock; LOCK_FLAGS=--upgrade raises versions.
	$(COMPILE) pyproject.toml --extra p2p -o requirements/runtime.lock
	$(COMPILE) pyproject.toml --extra p2p --group dev -c requirements/runtime.lock \
		-o requirements/dev.lock
	$(COMPILE) requirements/train.in -c requirements/dev.lock \
		-o requirements/train.lock
	$(COMPILE) pyproject.toml --extra integrations --overrides requirements/no-torch.txt \
		-c requirements/dev.lock -c requirements/train.lock \
		-o requirements/integrations.lock

clean: ## Remove .venv and all build and cache files.
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache
	find attacks reference src tests -name __pycache__ -type d -prune -exec rm -rf {} +
