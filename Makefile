# `make demo` and `make test` need python3 and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
# These come without their dependencies: PyPI's torchvision is a CUDA build that would replace a CPU torch.
# benchmarks/cpu_torchvision.py makes it, and so timm, importable beside one.
BESIDE_TORCH := timm torchvision segmentation_models_pytorch monai
OF_TIMM := pyyaml huggingface_hub
# Many tests start Python: without bytecode each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)

.PHONY: demo test pytest docs dist chaos soak lint constraints clean

demo: .venv/installed
	$(BIN)/predbn demo

# mypy has one core and the tests wait now and then, so both run at the same time.
test: .venv/installed-dev
	$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: .venv/installed-dev
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

# The site: build/site/index.html. It needs no network.
docs: .venv/installed-dev
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs build/site

# The files of a release, checked: dist/*.tar.gz and dist/*.whl (RELEASING.md).
dist: .venv/installed-dev
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

# Kills, torn files, full disks, two processes, flipped bits: some minutes; writes results/reliability.json.
chaos: .venv/installed-dev
	$(BIN)/python -m tests.chaos

# Two minutes of full load on a server whose streams come and go; writes results/serving-soak.json.
soak: .venv/installed-dev
	$(BIN)/python benchmarks/serving_soak.py

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A fresh resolution of constraints.txt by uv. torch keeps its version; as a CPU build it needs no package for CUDA.
# UV_TORCH_BACKEND=cpu takes that build from PyTorch's index, UV_FIND_LINKS=FOLDER from a folder.
constraints:
	printf '%s\n' torch==$(TORCH)+cpu $(BESIDE_TORCH) $(OF_TIMM) | uv pip compile --upgrade --quiet --no-header \
		--no-annotate --no-emit-package setuptools --extra dev --output-file constraints.txt pyproject.toml -
	sed -i 's/+cpu$$//' constraints.txt

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[eval]"
	touch $@

.venv/installed-dev: .venv/installed benchmarks/cpu_torchvision.py
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps $(BESIDE_TORCH)
	$(BIN)/pip install --quiet --constraint constraints.txt $(OF_TIMM)
	cp benchmarks/cpu_torchvision.py .venv/lib/python3*/site-packages
	echo "import cpu_torchvision" > $$(echo .venv/lib/python3*/site-packages)/cpu_torchvision.pth
	touch $@

clean:
	rm -rf .venv build dist
