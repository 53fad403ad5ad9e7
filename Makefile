# Everything installs itself: Python 3.11, pip and make are enough.
PYTHON ?= python3.11
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo faults mutations test lint up down bench lock clean

# torch is pinned exactly in the lock, so that pip takes a CPU build where one lies ready.
$(VENV)/.runtime: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(PIP) install -q -r requirements.lock
	$(PIP) install -q --no-deps -e .
	touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	$(PIP) install -q -r requirements-dev.lock
	touch $@

demo: $(VENV)/.runtime          ## watch a private dataset get synthetic text under a budget; MODEL=smollm2: readable
	$(BIN)/exchequer demo $(if $(MODEL),--model $(MODEL))

up: $(VENV)/.runtime            ## start the local stack
	$(BIN)/exchequer up

down: $(VENV)/.runtime          ## stop it; everything is kept
	$(BIN)/exchequer down

test: $(VENV)/.dev              ## the whole suite; ARGS='-m "not slow"' for the quick one
	$(BIN)/python -m pytest -n $(or $(WORKERS),3) --dist worksteal $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

faults: $(VENV)/.dev            ## inject FAULTS faults into the real service; SEED=n replays a run
	$(BIN)/python -m tests.faults --faults $(or $(FAULTS),200) $(if $(SEED),--seed $(SEED))

mutations: $(VENV)/.dev         ## take each guard out and show that the harness, or a test, notices
	$(BIN)/python -m tests.faults.mutations
	$(BIN)/python -m tests.mechanism_mutations

bench: $(VENV)/.dev             ## ratios in one run each; what they compare with is installed
	$(PIP) install -q opendp==0.16.0 "faiss-cpu>=1.15"
	for file in $$(ls benchmarks/[a-z]*.py | grep -v base_model); do \
		echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

lock: $(VENV)/.dev              ## make the locks anew from pyproject.toml
	$(BIN)/python -m piptools compile -q --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--extra client --extra server --extra worker -o requirements.lock pyproject.toml
	$(BIN)/python -m piptools compile -q --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--extra client --extra server --extra worker --extra dev -o requirements-dev.lock pyproject.toml
	sed -i 's/+cpu$$//' requirements.lock requirements-dev.lock  # either build of torch will do

clean:
	rm -rf $(VENV)
