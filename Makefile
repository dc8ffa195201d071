# Millrace's daily commands; `make help` lists them. Everything they need is set up on first use.
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev up down test test-all test-native native check coverage bench dist clean

PYTHON_FILES := appliance bench broker collector monitor protocol setup sinks stream tests
VENV := .venv/bin

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: ## virtual environment, Java, Redis, MySQL, connector jars: found or installed
	@setup/setup.sh runtime

setup-dev:
	@setup/setup.sh dev

up: setup ## start the mill in the background and wait until it is healthy (FOREGROUND=1: stay in front)
	@./millrace up $(if $(FOREGROUND),--foreground)

down: ## stop the mill cleanly
	@if [ -x $(VENV)/python ]; then ./millrace down; else echo "millrace: not set up, so nothing runs"; fi

test: setup-dev ## set up what tests need and run them all (PYTEST="-k name" narrows)
	@$(VENV)/python -m pytest tests -m "not slow" -n 2 --durations=20 --durations-min=5 $(PYTEST)

test-all: setup-dev ## the long form, hours; prints when each part of it last ran
	@$(VENV)/python setup/test_all.py $(PARTS)

check: setup-dev ## format, lint, strict types, house rules, fast tests: about six minutes on two cores
	@$(VENV)/ruff format --check --quiet $(PYTHON_FILES)
	@$(VENV)/ruff check --quiet $(PYTHON_FILES)
	@$(VENV)/mypy --no-error-summary
	@$(VENV)/python -m pytest tests/house tests/unit -m "not slow and not live" -n 2

coverage: setup-dev ## branches of the pure cores that unit tests take (TESTS=tests/unit/broker narrows)
	@$(VENV)/python -m tests.house.core_coverage $(or $(TESTS),tests/unit) $(PYTEST)

bench: setup-dev ## measurements as JSON lines, a table at the end
	@$(VENV)/python -m bench $(BENCH)

native: setup-dev ## compile the broker's hot code to C, for more small requests a second; optional
	@$(VENV)/python -m appliance.launch.native

test-native: native ## the tests of the broker with the compiled code (PYTEST="tests/sim" narrows)
	@$(VENV)/python setup/test_native.py $(PYTEST)

dist: setup-dev ## the wheel, in dist/
	@rm -rf dist
	@$(VENV)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean: ## remove caches; data, watched files and the virtual environment stay
	@rm -rf .ruff_cache .mypy_cache .pytest_cache .hypothesis .cache/*.log
	@find $(PYTHON_FILES) -name __pycache__ -type d -prune -exec rm -rf {} +
