# `make demo` and `make test` need python3 and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test docs dist chaos soak lint clean

demo: .venv/installed
	$(BIN)/predbn demo

test: .venv/installed-dev lint
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

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[eval]"
	touch $@

# torchvision, timm and what builds on them come without their dependencies: PyPI's torchvision is a CUDA build that
# would replace a CPU torch. benchmarks/cpu_torchvision.py makes it, and so timm, importable beside one.
.venv/installed-dev: .venv/installed benchmarks/cpu_torchvision.py
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps timm torchvision segmentation_models_pytorch monai
	$(BIN)/pip install --quiet --constraint constraints.txt pyyaml huggingface_hub
	cp benchmarks/cpu_torchvision.py .venv/lib/python3*/site-packages
	echo "import cpu_torchvision" > $$(echo .venv/lib/python3*/site-packages)/cpu_torchvision.pth
	touch $@

clean:
	rm -rf .venv build dist
