"""Written data sets are complete and survive a kill."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from predbn.common import PredbnError
from predbn.data import DataError, write_cifar10c, write_imagenetc
from predbn.shifts import corrupt

Images = npt.NDArray[np.uint8]
TWO = ["fog", "shot_noise"]


def folder(tmp_path: Path, large: Images) -> Path:
    source = tmp_path / "clean"
    for wnid, image, name in (("n01", large[0], "b.JPEG"), ("n01", large[1], "a.jpeg"), ("n02", large[2], "c.png")):
        (source / wnid).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(source / wnid / name)
    return source


def test_cifar10c_layout(tmp_path: Path, cifar: Images) -> None:
    labels = np.arange(30) % 10
    steps: list[tuple[int, int]] = []
    write_cifar10c(cifar[:30], labels, tmp_path / "c", TWO, seed=4, progress=lambda *step: steps.append(step))
    fog = np.load(tmp_path / "c" / "fog.npy")
    assert fog.shape == (150, 32, 32, 3)
    assert fog.dtype == np.uint8
    for severity in range(1, 6):
        expected = corrupt(cifar[:30], "fog", severity, seed=4, index=range(30))
        assert np.array_equal(fog[(severity - 1) * 30 : severity * 30], expected)
    assert np.array_equal(np.load(tmp_path / "c" / "labels.npy"), np.tile(labels, 5))
    assert steps == [(done, 10) for done in range(11)]
    assert {path.name for path in (tmp_path / "c").iterdir()} - {".lock"} == {
        "fog.npy",
        "shot_noise.npy",
        "labels.npy",
        "corrupt.json",
    }


def test_continues_after_a_kill(tmp_path: Path, cifar: Images) -> None:
    labels, out = np.zeros(10, np.int64), tmp_path / "c"

    def kill(done: int, total: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_cifar10c(cifar[:10], labels, out, TWO, seed=0, progress=kill)
    assert (out / "fog.npy").exists()
    assert not (out / "shot_noise.npy").exists()
    before = (out / "fog.npy").stat().st_mtime_ns
    (out / "shot_noise.npy.part").write_bytes(b"half")
    write_cifar10c(cifar[:10], labels, out, TWO, seed=0)
    assert (out / "fog.npy").stat().st_mtime_ns == before
    assert not list(out.glob("*.part"))
    expected = corrupt(cifar[:10], "shot_noise", 5, seed=0, index=range(10))
    assert np.array_equal(np.load(out / "shot_noise.npy")[40:], expected)


def test_imagenetc_layout(tmp_path: Path, large: Images) -> None:
    source, out = folder(tmp_path, large), tmp_path / "c"
    write_imagenetc(source, out, ["contrast"], seed=0)
    files = sorted(str(p.relative_to(out)) for p in out.rglob("*.JPEG"))
    stems = ["n01/a", "n01/b", "n02/c"]
    assert files == [f"contrast/{s}/{stem}.JPEG" for s in range(1, 6) for stem in stems]
    with Image.open(out / "contrast" / "5" / "n02" / "c.JPEG") as picture:
        assert picture.size == (224, 224)
        assert picture.format == "JPEG"
        done = np.asarray(picture).astype(int)
    expected = corrupt(large[2:3], "contrast", 5, seed=0, index=[2])[0]
    assert np.abs(done - expected).mean() < 3


def test_imagenetc_makes_only_what_is_missing(tmp_path: Path, large: Images) -> None:
    source, out = folder(tmp_path, large), tmp_path / "c"
    write_imagenetc(source, out, ["gaussian_noise"], seed=0)
    lost, intact = (out / "gaussian_noise" / "3" / "n01" / f"{stem}.JPEG" for stem in "ab")
    content, before = lost.read_bytes(), intact.stat().st_mtime_ns
    lost.unlink()
    write_imagenetc(source, out, ["gaussian_noise"], seed=0)
    assert lost.read_bytes() == content
    assert intact.stat().st_mtime_ns == before


def test_bad_input_writes_nothing(tmp_path: Path, cifar: Images, large: Images) -> None:
    out, labels = tmp_path / "c", np.zeros(4, np.int64)
    source = folder(tmp_path, large)
    (tmp_path / "text.npy").write_text("not an array")
    (tmp_path / "empty").mkdir()
    bad = [
        (lambda: write_cifar10c(cifar[:4] / 255, labels, out, TWO, seed=0), "must be uint8"),
        (lambda: write_cifar10c(cifar[:4], labels[:3], out, TWO, seed=0), "4 images, but the labels"),
        (lambda: write_cifar10c(cifar[:4], labels, out, ["frog"], seed=0), "did you mean 'fog'"),
        (lambda: write_cifar10c(cifar[:4], labels, out, TWO, seed=0, constants="x"), "auto, cifar or imagenet"),
        (lambda: write_cifar10c(tmp_path / "text.npy", labels, out, TWO, seed=0), "cannot be read"),
        (lambda: write_cifar10c(tmp_path / "none.npy", labels, out, TWO, seed=0), "is missing"),
        (lambda: write_imagenetc(tmp_path / "none", out, TWO, seed=0), "not a directory"),
        (lambda: write_imagenetc(tmp_path / "empty", out, TWO, seed=0), "no pictures"),
        (lambda: write_imagenetc(source, out, ["fogg"], seed=0), "did you mean 'fog'"),
    ]
    for call, message in bad:
        with pytest.raises(PredbnError, match=message):
            call()
        assert not out.exists()


def test_does_not_mix_with_other_files(tmp_path: Path, cifar: Images) -> None:
    labels, out = np.zeros(4, np.int64), tmp_path / "c"
    write_cifar10c(cifar[:4], labels, out, ["contrast"], seed=0)
    with pytest.raises(DataError, match="begun with other data or options"):
        write_cifar10c(cifar[:4], labels, out, ["contrast"], seed=1)
    with pytest.raises(DataError, match="begun with other data or options"):
        write_cifar10c(cifar[4:8], labels, out, ["contrast"], seed=0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    with pytest.raises(DataError, match="not empty"):
        write_cifar10c(cifar[:4], labels, tmp_path / "full", ["contrast"], seed=0)
    with pytest.raises(DataError, match="is a file"):
        write_cifar10c(cifar[:4], labels, tmp_path / "full" / "thesis.tex", ["contrast"], seed=0)


def test_pictures_that_would_become_one_file_are_refused(tmp_path: Path, large: Images) -> None:
    source = folder(tmp_path, large)
    Image.fromarray(large[3]).save(source / "n01" / "a.png")
    with pytest.raises(DataError, match=r"has n01/a.jpeg and n01/a.png, which both become n01/a.JPEG: rename one"):
        write_imagenetc(source, tmp_path / "c", ["contrast"], seed=0)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("labels", [np.array([0.5, 1, 2, 3]), np.array([0, np.nan, 1, 2]), np.array([0, -1, 1, 2])])
def test_labels_that_are_not_classes_are_refused(tmp_path: Path, cifar: Images, labels: npt.NDArray[Any]) -> None:
    np.save(tmp_path / "images.npy", cifar[:4])
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(DataError, match=r"labels.npy.* (integers|not be negative)"):
        write_cifar10c(tmp_path / "images.npy", tmp_path / "labels.npy", tmp_path / "c", TWO, seed=0)
    assert not (tmp_path / "c").exists()
