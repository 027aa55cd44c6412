# Everything installs itself into .venv: a fresh clone needs Python 3.11 or newer and make, nothing else.
# LOCKED=1 installs the versions of constraints/dev.txt, checked by their hashes; otherwise the newest within bounds.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT := out
WHEEL := build/wheel
SITE := build/site
LOWEST := build/lowest
DOCS_STAMP := $(VENV)/.installed-docs
PEERS_STAMP := $(VENV)/.installed-peers

.PHONY: demo test suite test-full test-lowest lock audit lint types kernels wheel-test docs docs-tools notebook peers format clean

demo: $(STAMP)
	$(BIN)/chary demo --out $(OUT) --overwrite

test: lint types suite
	$(MAKE) wheel-test

# The tests without lint, types and the wheel.
suite: $(STAMP) kernels
	$(BIN)/python -m pytest -n auto --doctest-modules src tests -m 'not slow' --quiet

test-full: $(STAMP) lint types kernels
	CHARY_TESTS=full $(BIN)/python -m pytest -n auto --doctest-modules src tests
	$(MAKE) wheel-test
	cd build && PYTHONPATH=$(CURDIR)/$(SITE) $(CURDIR)/$(SITE)/bin/chary run riverswim --episodes 5 --json

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# Test workers that start with an empty cache would each compile everything: compile once before they start.
kernels: $(STAMP)
	$(BIN)/python tests/kernels.py

# The package as users receive it: built, installed alone, imported from outside the checkout.
wheel-test: $(STAMP)
	rm -rf $(WHEEL) $(SITE)
	$(BIN)/python -m build --wheel --outdir $(WHEEL) . >/dev/null
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(SITE) $(WHEEL)/*.whl
	cp scripts/smoke_wheel.py build/
	cd build && PYTHONPATH=$(CURDIR)/$(SITE) $(CURDIR)/$(BIN)/python smoke_wheel.py $(CURDIR)/$(SITE)

# The lowest versions that pyproject.toml declares, in an environment of their own, with a smoke test of each extra.
# EXTRAS= tries the core alone, with the lowest NumPy and SciPy, which JAX and others raise, and EXTRAS=sb3,d3rlpy
# the adapters, with the newest PyTorch.
EXTRAS ?= figures,report,cluster,minari,deep,serve
COMMA := ,
test-lowest: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5,<1'
	rm -rf $(LOWEST)
	$(BIN)/uv venv --quiet --python '$(PYTHON)' $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct '.$(if $(EXTRAS),[$(EXTRAS)])'
	cp scripts/smoke_extras.py build/
	cd build && ../$(LOWEST)/bin/python smoke_extras.py core wrappers $(subst $(COMMA), ,$(EXTRAS))

# Renew the locked versions and the page about them. The files name no index: pip takes the one that it is set up with.
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links pyproject.toml
lock: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5,<1'
	$(COMPILE) --extra dev --extra docs --output-file constraints/dev.txt
	$(COMPILE) --extra sb3 --extra d3rlpy --extra tensorboard --extra mlflow --extra wandb --constraints constraints/dev.txt --output-file constraints/peers.txt
	$(BIN)/python scripts/list_dependencies.py

# Known vulnerabilities of the locked versions; needs a network.
audit: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.7,<3'
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r constraints/dev.txt -r constraints/peers.txt

# The site, in build/docs. Every warning is an error (except with --quiet, which hides warnings from --strict too).
# The variable switches off an announcement that the theme prints as a warning.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m pytest --quiet tests/contracts/test_site.py tests/contracts/test_notebook.py

# With these tools the suite builds the site and runs the notebook too.
docs-tools: $(DOCS_STAMP)

# Run the notebooks and store their new outputs.
notebook: $(DOCS_STAMP)
	$(BIN)/python scripts/execute_notebook.py notebooks/*.ipynb

# Stable-Baselines3 and d3rlpy: for the adapters, for the example that uses them, and for the tests that compare the
# deep learner with them. Without them those tests are skipped. Later versions of d3rlpy pin an old Gymnasium.
peers: $(PEERS_STAMP)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build $(OUT) .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("chary needs Python 3.11 or newer, this is " + sys.version) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
ifdef LOCKED
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
endif
	touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $(DOCS_STAMP)

# PyTorch first: where pip knows an index of CPU builds, this picks the CPU build and not gigabytes of CUDA.
$(PEERS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[sb3]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check d3rlpy==2.8.0
	$(BIN)/python -c 'import stable_baselines3, d3rlpy' 2>/dev/null
	touch $(PEERS_STAMP)
