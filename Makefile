# Everything goes into .venv; `make run` and `make test` set it up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run quick test test-all lint evidence bench gpu wheel-check cross schemas clean

run: $(VENV)/run.stamp  ## the 70-process campaign on the simulated engine, verified
	$(BIN)/mechanism run plans/route_block.yaml

quick: $(VENV)/run.stamp  ## the same matrix on a toy geometry, in seconds
	$(BIN)/mechanism run plans/quick.yaml

test: $(VENV)/dev.stamp  ## the tests, without the slow ones
	$(BIN)/python -m pytest -q -n 2 -m "not slow and not gpu and not vllm_wheel and not cross"

test-all: $(VENV)/dev.stamp  ## the slow tests too
	$(BIN)/python -m pytest -q -n 2 -m "not gpu and not vllm_wheel and not cross"

lint: $(VENV)/dev.stamp  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

evidence: $(VENV)/run.stamp  ## verify the committed evidence, raw bytes included
	$(BIN)/verifier check runs/route-block --level raw --plan plans/route_block.yaml
	$(BIN)/verifier check runs/stable-construction --level raw --plan plans/stable_construction.yaml
	$(BIN)/python tests/project/rerun_evidence.py

bench: $(VENV)/dev.stamp  ## measure; writes bench.json; after `make cross`, MMA-Sim beside it
	$(BIN)/python tests/bench/bench.py

wheel-check:  ## the engine vllm against the real wheel, without a GPU; makes 6 GB in .wheel-venv
	PYTHON=$(PYTHON) tests/vllm_engine/with_wheel.sh

cross:  ## the simulation against torch, AutoAWQ, vLLM's CPU helpers and MMA-Sim; makes 2 GB in .cross-venv
	PYTHON=$(PYTHON) tests/cross/with_oracles.sh

# An environment with the extra gpu; or set GPU_PYTHON to one with torch 2.11.0 where a package `vllm` holds _moe_C.
GPU_PYTHON ?= .gpu-venv/bin/python

gpu: $(GPU_PYTHON)  ## on a machine with a GPU: settle what a CPU assumes, then run the campaign of that GPU
	$(GPU_PYTHON) -m mechanism gpu check --out runs/local/gpu --vectors tests/kernel/vectors

.gpu-venv/bin/python:
	$(PYTHON) -m venv .gpu-venv
	.gpu-venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[gpu]'

schemas: $(VENV)/run.stamp  ## write the JSON Schemas anew from the models
	$(BIN)/python -m ledger.schemas

$(VENV)/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "expected Python 3.11 or newer as $(PYTHON), got $$($(PYTHON) --version 2>&1); set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "expected the venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/run.stamp: $(VENV)/python.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[run,report]'
	$(BIN)/python -m compileall -q mechanism ledger verifier
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[run,fast,report,package,sign,dev]'
	@touch $@

clean:
	rm -rf $(VENV) bench.json
