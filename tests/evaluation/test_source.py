import numpy as np
import pytest
import torch

from predbn import shifts
from predbn.data import Cifar10C, Corrupted, DataError, sample
from predbn.evaluation import Split
from predbn.evaluation.source import PictureSource
from predbn.evaluation.splits import make_stream, positions


def test_a_stream_is_the_corrupted_images_in_its_order():
    images = sample("test")
    source = PictureSource(images, images=40)
    found = list(source.stream(Split("fog", 3), "by_class", 5, 16))
    visited = positions("by_class", images.labels, 5, 40)
    assert [len(batch.labels) for batch in found] == [16, 16, 8]
    assert torch.equal(torch.cat([batch.index for batch in found]), images.index[visited])
    expected = shifts.corrupt(images.images[visited], "fog", 3, seed=5, index=images.index[visited])
    assert torch.equal(torch.cat([batch.images for batch in found]), expected)


@pytest.mark.parametrize("name", ["mixed-5", "mixed-5-levels", "in_turn-3", "markov-4-0.7"])
@pytest.mark.parametrize("size", [7, 40])
def test_every_image_of_a_changing_shift_is_as_its_split_makes_it(name, size):
    images = sample("test")
    source = PictureSource(images, images=20)
    split = Split(name, 2)
    found = list(source.stream(split, "markov:0.5", 3, size))
    visited = positions("markov:0.5", images.labels, 3, 20)
    stream = make_stream(split, visited, images.index, source.names, 3)
    expected = []
    for number, place in zip(stream.numbers, stream.positions, strict=True):
        image, index = images.images[place][None], images.index[place][None]
        expected.append(shifts.corrupt(image, *stream.splits[number], seed=3, index=index))
    assert torch.equal(torch.cat([batch.images for batch in found]), torch.cat(expected))
    assert torch.equal(torch.cat([batch.labels for batch in found]), images.labels[stream.positions])
    assert torch.equal(torch.cat([batch.index for batch in found]), images.index[stream.positions])


def test_published_splits_and_their_clean_images(tmp_path):
    clean = sample("test").take(10)
    shifted = Corrupted(clean)
    rows = [
        torch.cat([b.images for b in shifted.batches("fog", severity, 10)]).permute(0, 2, 3, 1).numpy()
        for severity in range(1, 6)
    ]
    np.save(tmp_path / "fog.npy", np.concatenate(rows))
    np.save(tmp_path / "labels.npy", np.tile(clean.labels.numpy(), 5))
    source = PictureSource(Cifar10C(tmp_path))
    (batch,) = source.stream(Split("fog", 4), "official", 0, 10)
    assert np.array_equal(batch.images.permute(0, 2, 3, 1).numpy(), rows[3])
    assert source.describe()["corruptions"] == "as published"
    assert not source.has_clean
    assert PictureSource(Cifar10C(tmp_path, clean=clean)).has_clean
    with pytest.raises(DataError, match="no clean images"):
        source.stream(Split("clean", 0), "official", 0, 10)
    before = source.describe()["sha256"]
    (tmp_path / ".lock").touch()
    assert source.describe()["sha256"] == before
    (tmp_path / "snow.npy").touch()
    assert source.describe()["sha256"] != before
