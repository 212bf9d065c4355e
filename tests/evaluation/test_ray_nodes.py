from __future__ import annotations

import pytest

from predbn.evaluation import EvaluationError
from predbn.evaluation.ray_nodes import Share


@pytest.mark.parametrize(
    ("share", "resources", "count", "cpus", "gpus"),
    [
        (Share("cpu"), {"CPU": 8.0}, 1, 8, 0),
        (Share("cpu"), {"CPU": 8.0, "GPU": 2.0}, 1, 8, 0),
        (Share("cpu", cpus=3), {"CPU": 8.0}, 2, 3, 0),
        (Share("cpu", cpus=9), {"CPU": 8.0}, 0, None, None),
        (Share("cpu"), {"memory": 1e9}, 0, None, None),
        (Share("cuda"), {"CPU": 16.0, "GPU": 4.0}, 4, 4, 1),
        (Share("cuda"), {"CPU": 16.0}, 0, None, None),
        (Share("cuda"), {"GPU": 1.0}, 1, 0, 1),
        (Share("cuda", gpus=0.5), {"CPU": 3.0, "GPU": 1.0}, 2, 1, 0.5),
        (Share("cuda", cpus=8), {"CPU": 16.0, "GPU": 4.0}, 2, 8, 1),
        (Share("cuda", gpus=2), {"CPU": 16.0, "GPU": 5.0}, 2, 8, 2),
    ],
)
def test_a_node_is_divided_among_as_many_workers_as_it_has_room_for(share, resources, count, cpus, gpus):
    assert share.options(resources) == [{"num_cpus": cpus, "num_gpus": gpus}] * count


@pytest.mark.parametrize("given", [{"cpus": 0}, {"gpus": 0}, {"gpus": 1.5}, {"gpus": -1}])
def test_what_no_worker_can_have_is_refused(given):
    with pytest.raises(EvaluationError, match=r"_per_worker is"):
        Share("cuda", **given)


def test_a_share_says_what_a_node_must_have():
    shares = Share("cpu"), Share("cpu", cpus=4), Share("cuda"), Share("cuda", cpus=2, gpus=0.5)
    assert list(map(str, shares)) == ["1 CPU", "4 CPU", "1 GPU", "0.5 GPU and 2 CPU"]
