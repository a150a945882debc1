# `make` alone lists what there is. Everything works in a virtual environment below the checkout.
VENV := .venv
BIN := $(VENV)/bin
# Where the log of a Docker engine started by `make test` goes.
CACHE := .cache

.DEFAULT_GOAL := help
.PHONY: help demo serve install test check lint format types imports unit audit lock sbom engine clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## From a fresh clone to a proven culprit, in a few minutes
	$(BIN)/perfbisect demo

serve: $(VENV)/.installed ## Show what the demo found, on http://127.0.0.1:8080
	$(BIN)/perfbisect serve --data-dir perfbisect-data

install: $(VENV)/.installed-dev ## Create .venv with everything that development needs

test: $(VENV)/.installed-dev engine lint types imports audit ## Everything that CI runs, on real parts where they can be had
	$(BIN)/pytest -q -n 2 --durations=15

check: lint types imports unit ## The fast part: lint, types, import contracts, unit tests

lint: $(VENV)/.installed-dev ## Style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev ## Rewrite the files in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev ## Static types, strict
	$(BIN)/mypy

imports: $(VENV)/.installed-dev ## Which part may import which
	$(BIN)/lint-imports

unit: $(VENV)/.installed-dev ## Unit tests
	$(BIN)/pytest -q tests/unit

audit: $(VENV)/.installed-dev ## Known vulnerabilities of what is locked, where the service answers
	@scripts/audit $(VENV)

lock: $(VENV)/.installed-dev ## Resolve the dependencies anew into requirements.lock and requirements-dev.lock
	@scripts/lock $(VENV)

sbom: $(VENV)/.installed-dev ## Bill of materials of a release (CycloneDX), below dist/
	@mkdir -p dist
	@$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml \
		--output-reproducible --output-format JSON --output-file dist/perfbisect.cdx.json
	@echo "dist/perfbisect.cdx.json"

engine: ## Install and start what the tests with real parts need (root on Debian only)
	@scripts/prepare-machine $(CACHE)

clean: ## Remove the environment, caches and build results
	rm -rf $(VENV) $(CACHE) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# The stamps are older than pyproject.toml when dependencies may have changed; a second call is instant.
$(VENV)/.installed: pyproject.toml requirements.lock scripts/install
	@scripts/install $(VENV) .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml requirements.lock requirements-dev.lock scripts/install
	@scripts/install $(VENV) '.[dev,postgresql]'
	@touch $(VENV)/.installed $@
