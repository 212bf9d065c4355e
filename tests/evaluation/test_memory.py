"""Memory does not grow with the number of images, splits or models; measured in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MEASURED = """
import resource, sys
from tests.evaluation import tiny
from predbn.evaluation import InProcess, Model, Plan
from predbn.evaluation.job import Job
import predbn.models
images, splits, models = map(int, sys.argv[1:])
predbn.models.open_model = lambda reference, **_: tiny.classifier(int(reference.split("/")[1]), ballast=1_000_000)
plan = Plan(
    models=[f"t/{k}" for k in range(models)],
    strategies="batch",
    shifts=tiny.Made(1).names[:splits],
    severities=(1,),
    batch_sizes=(100,),
)
job = Job(plan, data=tiny.Made(images), memory_limit=12_000_000)
for result in InProcess().run(job, job.split_units([], set())):
    assert len(result.rows) == models
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
PICTURES = 3 * 32 * 32 / 1024
"""KiB of one picture."""
MODEL = 4_000_000 / 1024
"""KiB of the parameters of one model."""


def peak(images: int, splits: int, models: int) -> int:
    """The peak in KiB, with an allocator that returns freed memory."""
    allocator = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    environment = {**os.environ, **allocator, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(images), str(splits), str(models)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout)


def test_memory_is_flat():
    small = peak(2_600, 1, 3)
    more_images, more = peak(22_600, 1, 3), peak(2_600, 2, 13)
    assert more_images - small < 0.4 * 20_000 * PICTURES
    assert more - small < 0.4 * 10 * MODEL
