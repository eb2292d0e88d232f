# `make` alone lists the targets. Everything runs from .venv, which the first target builds.

PYTHON ?= python3
export PYTEST_ARGS ?=
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo console test test-unit explore simulate lint types check docs site bench bench-core soak pins release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1mmake %-10s\033[0m %s\n", $$1, $$2}' Makefile

setup: $(READY) ## build .venv from the pinned requirements, when it is missing or they changed

$(READY): requirements/dev.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=$$($(PYTHON) -c 'import sys; print("Python %d.%d" % sys.version_info[:2])' 2>/dev/null || echo "not there"); \
	  echo "setup: PYTHON=$(PYTHON) is $$found; ackfloor needs 3.11 or newer: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setup: installing the pinned requirements (a few minutes on a first run: Spark is large)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## 20,000 orders through a real Kafka, one worker killed, everything reconciled
	@$(BIN)/ackfloor demo --report demo-report.html

console: setup ## what is wrong, in a browser: a broker, a shop in trouble and the console, until Ctrl-C; LISTEN=127.0.0.1:9700
	@$(BIN)/python -m ackfloor_handlers.incident watch --listen $(or $(LISTEN),127.0.0.1:9700)

test: setup ## every test, with coverage; PYTEST_ARGS="-k floor" for some of them
	@.ci/tests

test-unit: setup ## the tests that need no broker, no Spark, no browser and no second process
	@$(BIN)/python -m pytest -n 2 -m "not kafka and not spark and not e2e and not browser" $(PYTEST_ARGS)

explore: setup ## the core's properties with other examples, drawn at random; TIMES=20 as many
	@ACKFLOOR_EXPLORE=$(or $(TIMES),20) $(BIN)/python -m pytest -n 2 --timeout 0 tests/framework/core $(PYTEST_ARGS)

simulate: setup ## workers and broker in one process, decided by seeds; SEEDS=1000 FROM=1
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) --from $(or $(FROM),1)

lint: setup ## ruff: rules and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: setup ## mypy and pyright, both strict, side by side
	@$(BIN)/mypy & mypy=$$!; $(BIN)/pyright; pyright=$$?; wait $$mypy && exit $$pyright

check: lint types ## lint, types, import directions, docs
	@$(BIN)/python -m pytest -q tests/structure -m "not e2e"

docs: setup ## write docs/reference, the dashboard and the file map of docs/DESIGN.md from the code
	@$(BIN)/python -m ackfloor.settings.settings_reference > docs/reference/config.md
	@$(BIN)/python -m ackfloor.cli.reference.cli_reference > docs/reference/cli.md
	@$(BIN)/python -m ackfloor.cli.reference.headers_reference > docs/reference/headers.md
	@$(BIN)/python -m ackfloor_monitoring.metrics.metrics_reference > docs/reference/metrics.md
	@$(BIN)/python -m tests.structure.promises > docs/reference/promises.md
	@$(BIN)/python -m ackfloor_monitoring.spark.table.table_reference > docs/reference/table.md
	@$(BIN)/python -m ackfloor_monitoring.dashboards.grafana > monitoring/ackfloor_monitoring/dashboards/ackfloor.json
	@$(BIN)/python docs/file_map.py

site: setup ## the docs as a site in build/site; a warning is a failure
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site: open build/site/index.html"

soak: setup ## seeds, safeguards and outages of the simulation, long tests, then kills and faults on 3 brokers; MINUTES=10 SEED=7 PROTOCOL=range OUT=folder AUDIT=1
	@$(BIN)/python -m tests.simulation --seeds 5000 --from $(or $(SEED),1)
	@$(BIN)/python -m tests.simulation --safeguards --from $(or $(SEED),1)
	@$(BIN)/python -m tests.simulation --outages --seeds 1 --from $(or $(SEED),1)
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m soak
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(if $(PROTOCOL),--protocol $(PROTOCOL)) $(if $(PARKING),--parking $(PARKING)) $(if $(OUT),--out $(OUT)) $(if $(AUDIT),--audit)

bench: setup ## everything beside its peers, about an hour; ROUNDS=5; see benchmarks/README.md
	@$(BIN)/python -m benchmarks --rounds $(or $(ROUNDS),5)

bench-core: setup ## instructions of the core for a record, against the stored baseline
	@$(BIN)/python -m benchmarks.core

pins: setup ## resolve requirements/*.txt again, keeping the versions they have (needs uv)
	@.ci/pins

release: setup ## all of a release but the upload: built, checked, and tried on each Python that is found
	@.ci/release

clean: ## remove .venv, caches and builds
	rm -rf .venv .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
