# `make demo` and `make test` need python3 and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test chaos soak lint clean

demo: .venv/installed
	$(BIN)/predbn demo

test: .venv/installed-dev lint
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

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
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

# torchvision, timm and what builds on them come without their dependencies: PyPI's torchvision is a CUDA build that
# would replace the CPU torch; benchmarks/cpu_torchvision.py says how one gets along with it.
.venv/installed-dev: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps timm torchvision segmentation_models_pytorch monai
	$(BIN)/pip install --quiet --constraint constraints.txt pyyaml huggingface_hub safetensors pillow
	touch $@

clean:
	rm -rf .venv build dist
