# make run    set everything up and start the gateway with a model of its own
# make test   install what the tests need, and run them
# make check  formatting, lint, types, floors
# make bench  what it costs, beside nginx (needs gcc and nginx) and beside the vendors' SDKs

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test check format bench clean
.DEFAULT_GOAL := run

run: .venv/run
	$(BIN)/pellucid serve

test: .venv/dev
	$(BIN)/python -m pytest

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/dev
	$(BIN)/python bench/run.py
	$(BIN)/python bench/decode.py

clean:
	rm -rf .venv bench/bin bench/.venv

.venv/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Pellucid needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/run: .venv/created pyproject.toml constraints.txt
	@echo "Installing Pellucid and the engine of its embedded model …"
	$(PIP) -e '.[local]'
	@touch $@

.venv/dev: .venv/created pyproject.toml constraints.txt
	@echo "Installing what the tests need …"
	$(PIP) -e '.[local,dev]'
	@touch $@
