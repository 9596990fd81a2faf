# demo · test · cluster · coverage · lint · docs · notebooks · outputs · bench: each makes .venv and installs when missing, and is fast when it is not.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test cluster coverage lint docs notebooks outputs bench setup clean

demo: $(STAMP)  ## GELU, ELU, ReLU and SOI on bundled handwritten digits: a table, a verdict and a figure
	$(BIN)/actlab study run demo --report

test: $(STAMP)  ## the test suite
	$(BIN)/pytest -n 2 --dist worksteal

cluster: $(STAMP)  ## tests on a Ray cluster on this machine
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster]'
	$(BIN)/pytest -m cluster

coverage: $(STAMP)  ## the test suite, with coverage, which takes half as long again
	$(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term

bench: $(STAMP)  ## side-by-side speed measurements; writes benchmarks/latest.json
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/run.py

docs: $(STAMP)  ## the documentation site, in docs/_build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build

notebooks: $(STAMP)  ## execute the notebooks, which are kept with their outputs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[notebooks]'
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace --ExecutePreprocessor.record_timing=False notebooks/*.ipynb

outputs: notebooks  ## write what pages and notebooks show again from what is printed: some minutes, on an idle machine
	$(BIN)/pytest --rewrite -m "slow or not slow" tests/test_documents.py tests/test_examples.py tests/test_packaging.py \
		-k "test_examples_run or test_each_example_runs or test_the_walk"

lint: $(STAMP)  ## ruff (a cache would not see that a module has moved), ruff format, mypy
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@echo "installing actlab and its libraries into $(VENV): one to two minutes, once"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs
