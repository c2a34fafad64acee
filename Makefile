# Every target sets itself up. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup demo web test browser screenshots retest newest coverage check bench chaos model graphs api cases reference fmt clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Test processes: tests wait more than they compute.
AT_ONCE ?= $(shell expr 2 \* $$(nproc))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create the virtual environment and install everything

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Holdfast needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,web]'
	@touch $@

demo: $(STAMP) ## watch jobs outlive kill -9, for half a minute; KEEP=1 leaves the dashboard up
	@$(BIN)/holdfast demo $(if $(KEEP),--keep)

web: $(STAMP) ## show a believable week of work in the dashboard, until Ctrl-C; PORT=8420
	@$(BIN)/python -m bench.week $(if $(PORT),--port $(PORT)) $(ARGS)

test: $(STAMP) ## run the tests; of one area with ARGS=tests/worker
	$(BIN)/python -m pytest -q -n $(AT_ONCE) --dist worksteal --durations=10 $(ARGS)

browser: $(STAMP) ## install Chromium, and run the browser tests; screenshots with SCREENS=folder
	$(BIN)/python -m tests.web.browser.chromium
	HOLDFAST_BROWSER=1 $(BIN)/python -m pytest -q -n 2 tests/web/browser $(ARGS)
	$(if $(SCREENS),$(BIN)/python -m tests.web.browser.screenshots $(SCREENS))

screenshots: $(STAMP) ## take the pictures of docs/web.md again; some with ARGS=overview
	$(BIN)/python -m tests.web.browser.chromium
	$(BIN)/python -m tests.docs.screenshots $(ARGS)

retest: $(STAMP) ## run again, one by one, the tests that failed last
	$(BIN)/python -m pytest -q -p no:xdist --last-failed --last-failed-no-failures none $(ARGS)

newest: $(STAMP) ## run the process tests on the newest Python that is found beside this one
	@newest=$$($(BIN)/python -m tests.tools.newest_python); \
	if [ -z "$$newest" ]; then echo "process tests on a newer Python: not run, none was found"; exit; fi; \
	$(MAKE) --no-print-directory test VENV=.venv-newest PYTHON=$$newest ARGS="$(or $(ARGS),tests/worker)" \
	&& echo "process tests passed on $$(.venv-newest/bin/python --version)"

coverage: $(STAMP) ## run the tests and report branch coverage, of all processes
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n $(AT_ONCE) --dist worksteal $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

check: $(STAMP) ## format, lint, types, longest function, tests
	$(BIN)/ruff format --check src tests bench chaos examples
	$(BIN)/ruff check src tests bench chaos examples
	$(BIN)/mypy
	$(BIN)/python tests/tools/longest.py
	$(MAKE) test

bench: $(STAMP) ## measure beside eleven other queues, in one run; QUICK=1 in two minutes
	QUICK=$(QUICK) $(BIN)/python -m bench $(ARGS)

chaos: $(STAMP) ## kill and freeze workers, jobs and server for MINUTES (20); SEED=n
	$(BIN)/python -m chaos --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED)) $(ARGS)

model: $(STAMP) ## run the model test for MINUTES (5) on BACKEND (valkey); SEED=n; appends to docs/model.md
	$(BIN)/python -m tests.model.test_model --minutes $(or $(MINUTES),5) $(if $(BACKEND),--backend $(BACKEND)) $(if $(SEED),--seed $(SEED))

graphs: $(STAMP) ## mistreat random graphs of jobs for MINUTES (5)
	HOLDFAST_GRAPH_MINUTES=$(or $(MINUTES),5) $(BIN)/python -m pytest -q -s tests/model/test_graphs.py -k random_seeds

api: $(STAMP) ## send CASES (5000) requests that the specification of the REST API allows or forbids; SEED=n
	HOLDFAST_API_CASES=$(or $(CASES),5000) HOLDFAST_API_SEED=$(SEED) $(BIN)/python -m pytest -q -s --timeout 0 tests/web/test_openapi.py -k keeps_to

cases: $(STAMP) ## fill in replies that cases of the protocol do not have yet; of one area with ARGS=enqueue
	$(BIN)/python -m tests.conformance.record $(ARGS)

reference: $(STAMP) ## regenerate docs/reference from the docstrings, docs/rest from the specification
	$(BIN)/python -m tests.docs.reference
	$(BIN)/python -m tests.docs.rest_reference

fmt: $(STAMP) ## format the code
	$(BIN)/ruff format src tests bench chaos examples
	$(BIN)/ruff check --fix src tests bench chaos examples

clean: ## remove the virtual environment and what tools left
	rm -rf $(VENV) .venv-newest .bench .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
