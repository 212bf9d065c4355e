"""The short form of `make chaos`. tests/evaluation/test_ray_pool.py interrupts a run with Ray, which takes longer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .__main__ import FULL, SIGNALS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and small disks as Linux has them")


def test_nothing_is_lost_and_nothing_is_silently_wrong(tmp_path):
    out = tmp_path / "reliability.json"
    options = ["--rounds", "1", "--flips", "15", "--no-ray", "--out", str(out)]
    done = subprocess.run([sys.executable, "-m", "tests.chaos", *options], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(out.read_text())
    assert results["problems"] == []
    assert {kind: row["noticed"] for kind, row in results["flips"].items()} == dict.fromkeys(results["flips"], 15)
    for kind in SIGNALS:
        assert sum(tried for _, tried in results["trials"][kind].values()) >= 5
    if FULL not in results["trials"]:
        pytest.skip("all but full disks was tried: this system does not let users mount a small disk")
