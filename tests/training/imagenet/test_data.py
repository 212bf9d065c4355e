import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.training import TrainingError, open_imagenet
from predbn.training.imagenet.augmentation import read_crop
from predbn.training.imagenet.data import epoch_order

from .tiny import RECIPE, tiny_folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    return tiny_folder(tmp_path / "data")


@given(st.integers(12, 60), st.sampled_from([1, 2, 3]), st.integers(0, 9))
def test_all_processes_together_see_the_batches_of_one(count, ranks, epoch):
    alone = epoch_order(count, seed=1, epoch=epoch, batch_size=12)
    parts = [epoch_order(count, seed=1, epoch=epoch, batch_size=12, rank=rank, ranks=ranks) for rank in range(ranks)]
    assert torch.equal(torch.cat(parts, 1), alone)
    assert len(alone) == count // 12
    assert len(alone.flatten().unique()) == alone.numel()


@pytest.mark.parametrize(("workers", "start"), [(0, (0, 0)), (0, (1, 1)), (1, (1, 1))])
def test_batches_are_the_augmented_images_from_any_step_on(folder, workers, start):
    data = open_imagenet(folder, RECIPE.preprocessing, subset=True)
    batches = list(data.batches(seed=5, batch_size=4, epochs=2, workers=workers, start=start))
    first = 3 * start[0] + start[1]
    assert len(batches) == 6 - first
    for number, (images, labels) in enumerate(batches, first):
        epoch, step = divmod(number, 3)
        order = epoch_order(14, seed=5, epoch=epoch, batch_size=4)[step]
        assert labels.tolist() == data.train.labels[order].tolist()
        for image, index in zip(images, order.tolist(), strict=True):
            expected = read_crop(data.train.path(index), 16, seed=5, epoch=epoch, index=index)
            assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_named_in_one_sentence(folder, workers):
    data = open_imagenet(folder, RECIPE.preprocessing, subset=True)
    (folder / "train" / "dog" / "00009.png").write_bytes(b"not an image")
    with pytest.raises(
        TrainingError, match=r"\A[^\n]*dog/00009.png cannot be read as a picture: .* or damaged; replace it\.\Z"
    ):
        list(data.batches(seed=0, batch_size=14, epochs=1, workers=workers))


def test_wrong_folders_and_batches(folder):
    with pytest.raises(TrainingError, match=r"has 2 classes and ImageNet has 1,000; 1002 are .* or use --subset"):
        open_imagenet(folder, RECIPE.preprocessing)
    shutil.rmtree(folder / "val" / "cat")
    with pytest.raises(TrainingError, match=r"val has 1 classes and train has 2; 1 are .* such as cat in train: un"):
        open_imagenet(folder, RECIPE.preprocessing, subset=True)
    with pytest.raises(TrainingError, match="to contain the folders train and val, but it has no 'train'"):
        open_imagenet(folder / "val", RECIPE.preprocessing)
    with pytest.raises(TrainingError, match="Expected batch_size to be a multiple of the 4 processes, but got 10"):
        epoch_order(40, seed=0, epoch=0, batch_size=10, ranks=4)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_decoding_processes_end_when_the_training_is_killed(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"""
import multiprocessing
from predbn.training import ImageNetRecipe, open_imagenet

if __name__ == "__main__":
    data = open_imagenet({str(folder)!r}, ImageNetRecipe(size=16).preprocessing, subset=True)
    batches = data.batches(seed=0, batch_size=4, epochs=10**6, workers=1)
    next(batches)
    print(len(multiprocessing.active_children()), flush=True)
    for _ in batches:
        pass
""")
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as training:
        assert training.stdout is not None
        assert training.stdout.readline() == "1\n"
        training.kill()
        # The worker has the same standard output: reading it to its end waits for it.
        assert training.communicate(timeout=60)[0] == ""
