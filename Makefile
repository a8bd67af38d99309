# `make run` installs and runs an example, `make test` the tests of every change, `make test-all` all others,
# `make docs` builds the documentation, `make dist` the wheel. Python 3.11 to 3.13 as PYTHON.
PYTHON ?= python3
VENV ?= .venv
SERVERS ?= .servers
OTHERS ?= .others
BIN = $(VENV)/bin
# Tests start hundreds of processes, and each would compile the package again without the files of compiled code. Idle
# threads of BLAS use a core while they wait, so they wait only briefly here: several test processes share two cores.
unexport PYTHONDONTWRITEBYTECODE
test test-all: export OPENBLAS_THREAD_TIMEOUT = 4
test test-all: export KMP_BLOCKTIME = 0

.PHONY: run docs dist servers azurite test test-all lint benchmark schema clean

INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Only what `lle` needs to run.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	@touch $@

# What tests and checks need in addition. It is installed again whenever the program is.
$(VENV)/.installed-test: $(VENV)/.installed
	$(INSTALL) --editable '.[test]'
	@# Only its schemas of the Dask operator are used, so its own dependencies are left out.
	$(INSTALL) --no-deps dask-kubernetes
	@touch $@

# What the documentation needs in addition.
$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) --editable '.[docs]'
	@touch $@

# The object stores that tests start on loopback, apart from the program and its dependencies.
$(SERVERS)/.installed: tests/servers/requirements.txt
	$(PYTHON) -m venv $(SERVERS)
	$(SERVERS)/bin/pip install --quiet --disable-pip-version-check --requirement tests/servers/requirements.txt
	@touch $@

run: $(VENV)/.installed
	$(BIN)/lle run configs/quickstart.yaml
	@echo "The command is $(BIN)/lle. '. $(BIN)/activate' puts it on the path of this shell: then type lle --help"

# The pages of docs/ as a site in build/docs; a broken link or a missing page is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -q -W --keep-going --fresh-env -b html docs build/docs
	@echo "open build/docs/index.html"

# The source archive and the wheel built from it, in dist/, and the quickstart by this wheel in an environment of its own:
# the tools that build it would bring packages that the wheel may lack.
dist:
	rm -rf dist build/dist build/tools
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install --quiet --disable-pip-version-check build twine
	build/tools/bin/pyproject-build --outdir dist .
	build/tools/bin/twine check --strict dist/*
	$(PYTHON) -m venv build/dist
	build/dist/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd build/dist && ls lib/python*/site-packages/lle/py.typed && bin/lle run ../../configs/quickstart.yaml

servers: $(SERVERS)/.installed

# The emulator of Azure's blob storage; tests that need it are skipped without it. Needs npm.
azurite:
	npm install --no-fund --no-audit --prefix $(SERVERS) azurite@3.35.0

# tests/conftest.py describes how the tests are arranged.
test: $(VENV)/.installed-test
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not slow and not manual"

# The tests that `make test` leaves out: clusters, object stores, faults, benchmarks, further seeds.
test-all: $(VENV)/.installed-test
	@$(MAKE) servers || echo "no object stores here: their tests are skipped" >&2
	@# Three at once on two cores: some tests wait for pods, jobs and workers that are started.
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m "slow and not manual"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check pipeline tests
	$(BIN)/ruff format --check --quiet pipeline tests
	$(BIN)/lint-imports
	$(BIN)/mypy

# The programs that docs/how_it_compares.md compares with, apart from this one.
$(OTHERS)/.installed:
	$(PYTHON) -m venv $(OTHERS)
	$(OTHERS)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt scikit-learn tapkee umap-learn
	@touch $@

# Measures again and writes the tables of docs/how_it_compares.md; takes 23 minutes of processor time.
benchmark: $(VENV)/.installed-test $(OTHERS)/.installed
	$(BIN)/python -m tests.benchmarks.against_others --repeat 2 --python $(OTHERS)/bin/python --write docs/how_it_compares.md

schema: $(VENV)/.installed
	$(BIN)/lle schema > configs/schema.json

clean:
	rm -rf runs .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info
