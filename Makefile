# Everything installs itself: Python 3.11 to 3.14 with its venv module, and make, are enough. `make` alone lists the rest.
# PYTHON names an interpreter, VENV the folder to install into, TORCH the build of torch (cpu, cuda or auto).
VENV ?= .venv
BIN = $(VENV)/bin
INSTALL = sh scripts/python.sh scripts/install.py
export PYTHON VENV TORCH

.DEFAULT_GOAL = help
.PHONY: help service dev audit demo docs faults mutations sbom test test-release lint up down bench lock clean

# Looked at before each command, which takes a moment where everything is in place.
service:
	@$(INSTALL) service

dev:
	@$(INSTALL) dev

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 12

demo: service          ## watch a private dataset get synthetic text under a budget (MODEL=smollm2: readable)
	@$(BIN)/exchequer demo $(if $(MODEL),--model $(MODEL))

up: service            ## start the local stack
	$(BIN)/exchequer stack up

down: service          ## stop it; everything is kept
	$(BIN)/exchequer stack down

test: dev              ## the whole suite; ARGS='-m "not slow"' for the quick one
	$(BIN)/python -m pytest -n $(or $(WORKERS),auto) $(ARGS)

test-release: dev      ## the long tests, of which the suite has a short form each: before a release, and each night
	$(BIN)/python -m pytest -n $(or $(WORKERS),auto) -m release $(ARGS)

lint: dev              ## format, lints, types and import rules: one line each, more where one fails
	@for check in "ruff format --check ." "ruff check ." mypy "lint-imports --no-logo"; do \
		said=$$($(BIN)/$$check 2>&1) && echo "$$check: ok" || { echo "$$said"; echo "$$check: failed"; failed=1; }; \
	done; test -z "$$failed"

docs: service          ## make the pages of mechanisms and fields; all documents as a site in build/docs
	$(BIN)/python -m accountant.core.mechanisms.pages docs/mechanisms
	$(BIN)/python -m web.fields docs/fields.md
	$(BIN)/python -m web.documents build/docs

faults: dev            ## inject FAULTS faults into the real service; SEED=n replays a run
	$(BIN)/python -m tests.faults --faults $(or $(FAULTS),200) $(if $(SEED),--seed $(SEED))

mutations: dev         ## take each guard out and show that the harness, or a test, notices
	$(BIN)/python -m tests.faults.mutations
	$(BIN)/python -m tests.faults.restores --mutations
	$(BIN)/python -m tests.mechanism_mutations

bench: dev             ## ratios in one run each; what they compare with is installed
	for file in benchmarks/[a-z]*.py; do \
		echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

lock: dev              ## make the locks anew from pyproject.toml
	$(BIN)/python scripts/lock.py

sbom: service          ## what the service consists of, from the locks: build/sbom.json (CycloneDX)
	$(BIN)/python scripts/sbom.py

audit: service         ## the locks against the kept list of advisories, offline
	$(BIN)/python scripts/advisories.py

clean:                 ## remove the virtual environment; state is elsewhere: `make down` first
	rm -rf $(VENV)
