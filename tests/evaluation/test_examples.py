"""Example pictures of a run against the corrupted images themselves."""

import io

import numpy as np
from PIL import Image

from predbn.data import sample
from predbn.evaluation import Plan, Results, evaluate
from predbn.shifts import corrupt

from . import tiny


def test_a_run_keeps_the_first_image_under_each_shift_at_its_highest_severity(tmp_path):
    images = sample("test").take(20)
    models = {"t/0": tiny.classifier(0)}
    for shifts, severities in ((("clean", "fog"), (1, 3)), (("snow",), (2,))):
        plan = Plan(models="t/0", shifts=shifts, severities=severities, batch_sizes=20)
        evaluate(plan, tmp_path, data=images, models=models)
    found = {row["corruption"]: row for row in Results.load(tmp_path).examples.to_dict("records")}
    assert {name: row["severity"] for name, row in found.items()} == {"clean": 0, "fog": 3, "snow": 2}
    first = images.images[:1].permute(0, 2, 3, 1).numpy()
    for name, row in found.items():
        shifted = corrupt(first, name, row["severity"], seed=0, index=images.index[:1]) if name != "clean" else first
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(row["png"]))), shifted[0])
