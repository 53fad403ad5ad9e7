# Everything installs itself: Python 3.11, pip and make are enough. `make` alone lists what there is.
PYTHON ?= python3.11
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL = help
.PHONY: help audit demo docs faults mutations sbom test lint up down bench lock clean

# Which build of torch: README, "Installing it". An address in TORCH_INDEX is handed on by the environment.
export TORCH_INDEX

$(VENV)/.runtime: requirements-build.lock requirements.lock requirements-cuda.lock pyproject.toml
	@test -x $(BIN)/python || { echo "Making $(VENV) ..."; \
		$(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV); }
	@$(BIN)/python scripts/install.py service
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@$(BIN)/python scripts/install.py dev
	@touch $@

help:
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile | expand -t 12

demo: $(VENV)/.runtime          ## watch a private dataset get synthetic text under a budget (MODEL=smollm2: readable)
	@$(BIN)/exchequer demo $(if $(MODEL),--model $(MODEL))

up: $(VENV)/.runtime            ## start the local stack
	$(BIN)/exchequer up

down: $(VENV)/.runtime          ## stop it; everything is kept
	$(BIN)/exchequer down

test: $(VENV)/.dev              ## the whole suite; ARGS='-m "not slow"' for the quick one
	$(BIN)/python -m pytest -n $(or $(WORKERS),auto) $(ARGS)

lint: $(VENV)/.dev              ## format, lints, types and import rules: one line each, more where one fails
	@for check in "ruff format --check ." "ruff check ." mypy "lint-imports --no-logo"; do \
		said=$$($(BIN)/$$check 2>&1) && echo "$$check: ok" || { echo "$$said"; echo "$$check: failed"; failed=1; }; \
	done; test -z "$$failed"

docs: $(VENV)/.runtime          ## pages of mechanisms anew from their metadata; all documents as a site in build/docs
	$(BIN)/python -m accountant.core.mechanisms.pages docs/mechanisms
	$(BIN)/python -m web.documents build/docs

faults: $(VENV)/.dev            ## inject FAULTS faults into the real service; SEED=n replays a run
	$(BIN)/python -m tests.faults --faults $(or $(FAULTS),200) $(if $(SEED),--seed $(SEED))

mutations: $(VENV)/.dev         ## take each guard out and show that the harness, or a test, notices
	$(BIN)/python -m tests.faults.mutations
	$(BIN)/python -m tests.faults.restores --mutations
	$(BIN)/python -m tests.mechanism_mutations

bench: $(VENV)/.dev             ## ratios in one run each; what they compare with is installed
	$(PIP) install -q opendp==0.16.0 "faiss-cpu>=1.15"
	for file in benchmarks/[a-z]*.py; do \
		echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

lock: $(VENV)/.dev              ## make the locks anew from pyproject.toml
	$(BIN)/python scripts/lock.py

sbom: $(VENV)/.runtime          ## what the service consists of, from the locks: build/sbom.json (CycloneDX)
	$(BIN)/python scripts/sbom.py

audit: $(VENV)/.runtime         ## the locks against the kept list of advisories, offline
	$(BIN)/python scripts/advisories.py

clean:                          ## remove the virtual environment; state is elsewhere: `make down` first
	rm -rf $(VENV)
