# Everything needs only Python 3.11+, make and git. The virtual environment is made on first use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Tests start hundreds of processes, and none should compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo quick test coverage check audit format hooks bench lab answers walk fuzz codemap torture load mutants docs release clean

# What the tests use of the package's own extras.
EXTRAS := codemap,images,valkey,fastmcp,sdk,http,login,ui,yaml
# npm packages that only the tests need.
NODE := $(VENV)/node/installed.json $(VENV)/conformance/installed.json $(VENV)/servers/installed.json
# Frameworks for agents, in environments of their own.
HOSTS := $(VENV)/frameworks/installed.txt $(VENV)/litellm/installed.txt
# The core. Tests that start a process carry a mark, and are left to `make test`.
CORE := tests/fit tests/jsontext tests/schema tests/dialects tests/config tests/clients tests/lint tests/test_*.py

# Many tests wait for processes, so there are two workers for each core. Each takes a stretch of the tests, so that
# what a file's tests share is started once.
WORKERS = $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')

help:  ## show this list
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/python:
	@command -v $(PYTHON) >/dev/null || { echo "make: no '$(PYTHON)' found; install Python 3.11 or newer, or run make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: Python 3.11 or newer is needed; run make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install 'pip>=25.1'
	@touch $@

$(VENV)/base: pyproject.toml constraints.txt | $(VENV)/python
	@echo "Installing mcp-envelope (a few seconds) ..."
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/dev: pyproject.toml constraints.txt | $(VENV)/python
	@echo "Installing the test tools (about half a minute) ..."
	@$(PIP) install -c constraints.txt -e '.[$(EXTRAS)]' --group dev
	@touch $@ $(VENV)/base $(VENV)/codemap

$(VENV)/bench: pyproject.toml constraints.txt | $(VENV)/dev
	@echo "Installing what the benchmarks are compared with (about half a minute) ..."
	@$(PIP) install -c constraints.txt -e '.[fastmcp]' --group bench
	@touch $@

$(VENV)/mutants: pyproject.toml constraints.txt | $(VENV)/dev
	@echo "Installing cosmic-ray (about ten seconds) ..."
	@$(PIP) install -c constraints.txt -e . --group mutants
	@touch $@

$(VENV)/node/installed.json: tests/servers/node/package.json | $(VENV)/dev
	@echo "Installing the clients of the TypeScript SDK (about ten seconds) ..."
	@$(BIN)/python tests/servers/node/install.py
	@touch $@

$(VENV)/conformance/installed.json: tests/conformance/package.json | $(VENV)/dev
	@echo "Installing the conformance suite (about ten seconds) ..."
	@$(BIN)/python -m tests.conformance.suite
	@touch $@

$(VENV)/servers/installed.json: tests/proxy/node/package.json | $(VENV)/dev
	@echo "Installing servers to put the proxy in front of (about ten seconds) ..."
	@$(BIN)/python -m tests.proxy.real
	@touch $@

$(HOSTS): $(VENV)/%/installed.txt: tests/hosts/%.txt pyproject.toml | $(VENV)/dev
	@echo "Installing hosts to run in: $* (about a minute) ..."
	@$(BIN)/python -m tests.hosts.environment $*
	@touch $@

$(VENV)/demo: pyproject.toml constraints.txt | $(VENV)/python
	@echo "Installing mcp-envelope and a server to put it in front of (about ten seconds) ..."
	@$(PIP) install -c constraints.txt -e '.[demo]'
	@touch $@ $(VENV)/base

demo: $(VENV)/demo  ## flood the proxy with real servers, and show it before and after
	@$(BIN)/mcp-envelope demo

$(VENV)/codemap: pyproject.toml constraints.txt | $(VENV)/python
	@echo "Installing codemap's parsers and a language server (about twenty seconds) ..."
	@$(PIP) install -c constraints.txt -e '.[codemap]'
	@touch $@ $(VENV)/base

codemap: $(VENV)/codemap  ## index this repository with the example code-intelligence server
	@$(BIN)/python examples/codemap index --root .
	@echo "Now add it to a client: $(CURDIR)/$(BIN)/python $(CURDIR)/examples/codemap --root $(CURDIR)"

quick: $(VENV)/dev  ## the tests of the core with a fifth of the examples, in less than a minute
	@QUICK=1 $(BIN)/python -m pytest -n auto -m "not process" $(CORE)

test: $(VENV)/dev $(NODE) $(HOSTS)  ## all tests, in six to eight minutes
	@echo "6 to 8 minutes on two cores ('make quick' takes one) ..."
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

coverage: $(VENV)/dev $(NODE) $(HOSTS)  ## all tests, and which lines they ran
	@echo "About 10 minutes on two cores ..."
	@$(BIN)/python -m coverage erase
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term:skip-covered --cov-report=html

check: $(VENV)/dev  ## formatting, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

audit: $(VENV)/dev  ## what the package depends on: pinned, with known licences, and listed in the SBOM
	@$(BIN)/python scripts/sbom.py --check

format: $(VENV)/dev  ## format the code, and fix what the linter can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

hooks: $(VENV)/dev  ## check formatting, lint and types before every commit
	@$(PIP) install -c constraints.txt pre-commit
	@$(BIN)/pre-commit install

bench: $(VENV)/bench  ## speed and memory, as ratios of runs made side by side
	@$(BIN)/python benchmarks/run.py $(ARGS)

lab: $(VENV)/dev  ## real clients with a scripted model, with and without the proxy (ARGS="claude-code codex")
	@$(BIN)/python -m lab $(ARGS)

answers: $(VENV)/bench  ## which questions the first reply answers, and one further call (ARGS="--missed cars")
	@$(BIN)/python -m answers $(ARGS)

walk: $(VENV)/dev  ## how many modules and functions one result passes (ARGS="http fastmcp --list")
	@$(BIN)/python scripts/walk.py $(ARGS)

$(VENV)/fuzz: pyproject.toml constraints.txt | $(VENV)/dev
	@echo "Installing atheris (about ten seconds) ..."
	@$(PIP) install -c constraints.txt -e . --group fuzz
	@touch $@

fuzz: $(VENV)/fuzz  ## search at random for what breaks a promise (FUZZ_EXAMPLES=50000 FUZZ_RUNS=1000000)
	@$(BIN)/python fuzz/run.py $(ARGS)

torture: $(VENV)/dev  ## break what the proxy stands on, and count what survives (ARGS="--rounds 250 --proxies 200")
	@$(BIN)/python -m scripts.torture $(ARGS)

load: $(VENV)/dev  ## ten minutes of HTTP load on three replicas, restarted in turn (ARGS="--seconds 60")
	@$(BIN)/python -m scripts.load $(ARGS)

mutants: $(VENV)/mutants  ## change the code at random, and see whether the tests notice (ARGS="--module lanes --count 30")
	@$(BIN)/python scripts/mutants.py $(ARGS)

docs: $(VENV)/dev  ## the documentation as a site, in .site/
	@$(PIP) install -c constraints.txt --group docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open .site/index.html, or serve it: $(BIN)/mkdocs serve"

release: $(VENV)/dev  ## build dist/, and try it apart from this checkout (ARGS=0.2.0 to give it a version)
	@$(PIP) install -c constraints.txt --group release
	@$(BIN)/python scripts/release.py $(ARGS)

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* dist
