"""Memory does not grow with the number of images, splits or models; measured in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MEASURED = """
import resource
from tests.evaluation import tiny
from predbn.evaluation import InProcess, Plan
from predbn.evaluation.job import Job
import predbn.models

predbn.models.open_model = lambda reference, **_: tiny.classifier(int(reference.split("/")[1]), ballast=1_000_000)

def peak(images, splits, models):
    names, shifts = [f"t/{k}" for k in range(models)], tiny.Made(1).names[:splits]
    plan = Plan(models=names, strategies="batch", shifts=shifts, severities=(1,), batch_sizes=(100,))
    job = Job(plan, data=tiny.Made(images), memory_limit=12_000_000)
    for result in InProcess().run(job, job.split_units([], set())):
        assert len(result.rows) == models
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

print(peak(2_600, 1, 3), peak(8_600, 1, 3), peak(2_600, 1, 13))
"""
IMAGE = 3 * 32 * 32 / 1024
"""KiB of one image."""
MODEL = 4_000_000 / 1024
"""KiB of the parameters of one model."""


def test_memory_is_flat():
    allocator = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}  # returns freed memory
    environment = {**os.environ, **allocator, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-c", MEASURED]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    small, more_images, more_models = map(int, done.stdout.split())
    assert more_images - small < 0.4 * 6_000 * IMAGE
    assert more_models - more_images < 0.4 * 10 * MODEL
