# SPDX-License-Identifier: Apache-2.0
# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
# Where torch comes from is yours to say: TORCH="torch==2.13.0 --index-url URL" for a CPU build.
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
KERNELS := $(patsubst %/build.toml,%,$(wildcard kernels/*/build.toml))
# What needs a GPU is not run where there is none, so it need not be built: that takes a minute. That
# device code compiles, tests see of one architecture.
FOR_HERE := $(if $(shell nvidia-smi -L 2>/dev/null),,--variant '*-cpu-*')
ON_CPU := bitonic-sort layer-norm linear-gelu matmul moe normalize-volume
build = @for kernel in $(1); do echo "build $$kernel"; \
  $(BIN)/kernforge build --quiet kernels/$$kernel $(2) || exit; done
# Tests start Python and pytest some hundred times: what was compiled, and what pytest rewrote, is kept.
export PYTHONDONTWRITEBYTECODE :=
# Plugins by name, since pytest rewrites the assertions of every package that brings one: of all of kernforge.
# A test that hangs fails after ten minutes, with a traceback; on an idle machine none takes a minute.
PYTEST := $(BIN)/python -m pytest --disable-plugin-autoload -p xdist -p pytest_timeout --timeout 600 \
  -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all unit fuzz mutants test-gpu lint docs clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(VENV)/ready-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "kernforge needs Python 3.11 or newer; name one with PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "make the venv module work (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

$(VENV)/ready-torch:
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH)
	@touch $@

demo: $(VENV)/ready-torch $(VENV)/ready-build,demo  ## build, check, publish and load a real kernel, on a real photo
	$(BIN)/python scripts/demo.py

test: $(VENV)/ready-torch $(VENV)/ready-build,demo,test  ## run the unit tests and one real run of each road
	$(call build,img2gray relu-scale,$(FOR_HERE))
	$(PYTEST) -m 'unit or road' tests
	$(PYTEST) kernels/img2gray kernels/relu-scale

test-all: $(VENV)/ready-torch $(VENV)/ready-build,demo,test  ## run every test that this machine can
	$(call build,img2gray relu-scale,$(FOR_HERE))
	$(call build,$(ON_CPU),--variant '*-cpu-*')
	@# Bound with ATen, so built for the torch that is installed.
	$(call build,gelu-approx,--variant "$$($(BIN)/python -c \
	  'import torch; print("torch" + "".join(torch.__version__.split(".")[:2]))')-*-cpu-*")
	$(PYTEST) tests
	@# Apart from the others: pytest names these modules kernels.*, as the kernels client is named.
	$(PYTEST) $(KERNELS)

unit: $(VENV)/ready-torch $(VENV)/ready-build,demo,test  ## run the tests of single modules
	$(PYTEST) tests/unit

fuzz: $(VENV)/ready-build,demo,test  ## read 10,000 nearly right documents of each kind; SEED=7 for others
	ulimit -v 3000000; EXAMPLES=10000 $(PYTEST) --timeout 6000 tests/fuzz

mutants: $(VENV)/ready-torch $(VENV)/ready-build,demo,test,mutants  ## list the faults in PACKAGE=trust that its unit tests miss
	$(BIN)/python scripts/mutants.py $(PACKAGE)

test-gpu:  ## run every test that needs a GPU, on artifacts that were built before, with the Python on PATH
	PYTHONPATH=src $(PYTHON) scripts/test_gpu.py

lint: $(VENV)/ready-build,cluster,test,lint  ## linters, types and formats
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/sizes.py
	$(BIN)/python scripts/words.py
	git ls-files '*.cu' '*.cuh' '*.h' '*.cpp' | xargs $(BIN)/clang-format --dry-run -Werror

docs: $(VENV)/ready-build,demo,test  ## write the generated pages, and the site to site/
	COLUMNS=100 $(BIN)/python scripts/generate_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "read it: $(BIN)/python -m http.server --directory site"

clean:  ## remove what the other targets made in this checkout
	rm -rf $(VENV) .demo .mutants site kernels/*/build
