import json
from pathlib import Path

import pytest

from predbn.data import Images, sample
from predbn.models import resnet20, zoo
from predbn.models.weights import write_weights


@pytest.fixture
def small_zoo(tmp_path, monkeypatch) -> Path:
    """A zoo of three networks, one of them without a card."""
    monkeypatch.setattr(zoo, "ZOO", tmp_path)
    for norm, seed in (("batch", 2), ("batch", 10), ("layer", 0)):
        place = tmp_path / "resnet20-cifar10" / norm / str(seed)
        write_weights(place.with_suffix(".safetensors"), resnet20(norm).state_dict())
        if norm == "batch":
            place.with_suffix(".json").write_text(json.dumps({"seed": seed}))
    return tmp_path


@pytest.fixture(scope="session")
def embedded_test() -> Images:
    """The embedded test images, decoded once."""
    return sample("test")
