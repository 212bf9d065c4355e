"""One file of every kind that predbn writes, and how it is read: for flipping bits."""

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from predbn.common import PredbnError, read_json, read_torch_file
from predbn.data import decoded_files as cached_files
from predbn.data import from_folder, load_array, read_picture, read_prepared_criteo, resize_crop
from predbn.evaluation import Results
from predbn.evaluation.store import Store
from predbn.models import read_weights

from .commands import Stop
from .trials import Subject


class WrittenFile(NamedTuple):
    """A file and its reader, whose value can be compared."""

    path: Path
    read: Callable[[Path], object]


def written_files(subjects: Mapping[str, Subject]) -> dict[str, WrittenFile]:
    """A file of each kind, from the undisturbed runs and, for what a finished run removes, from killed ones."""
    run, arrays, pictures = (
        subjects[name].folder / "whole" for name in ("evaluate", "corrupt, arrays", "corrupt, pictures")
    )
    rows, network = subjects["data criteo"].folder / "whole", subjects["train"].folder / "whole" / "criteo-mlp"
    from_folder(subjects["corrupt, pictures"].folder.parent / "pictures", resize_crop(32))
    return {
        "table of results": WrittenFile(run / "results.parquet", _read_run),
        "reliability diagrams": WrittenFile(run / "reliability.parquet", _read_run),
        "hits": WrittenFile(run / "hits.parquet", _read_run),
        "fitted temperatures": WrittenFile(run / "fits.parquet", _read_run),
        "part of a run": WrittenFile(_part(subjects["evaluate"]), lambda path: _read_run(path.parent)),
        "run card": WrittenFile(run / "card.json", _read_run),
        "checkpoint": WrittenFile(_checkpoint(subjects["train"]), _read_checkpoint),
        "weights": WrittenFile(network / "0.safetensors", lambda path: _as_lists(read_weights(path)[0])),
        "card of a network": WrittenFile(network / "0.json", _read_card),
        "array of CIFAR-10-C": WrittenFile(arrays / "fog.npy", _read_array),
        "labels of CIFAR-10-C": WrittenFile(arrays / "labels.npy", _read_array),
        "picture of ImageNet-C": WrittenFile(min(pictures.rglob("*.JPEG")), lambda path: read_picture(path).tobytes()),
        "card of corrupted data": WrittenFile(arrays / "corrupt.json", _read_card),
        "rows of Criteo": WrittenFile(rows / "rows.npy", _read_array),
        "counts of Criteo": WrittenFile(rows / "criteo.json", lambda path: read_prepared_criteo(path.parent)),
        "cache of decoded pictures": WrittenFile(cached_files()[0], _read_array),
    }


def _read_run(path: Path) -> object:
    results, store = Results.load(path.parent), Store(path.parent)
    frames = [pd.DataFrame(frame).to_json() for frame in (results.frame, results.reliability, results.hits)]
    return frames, results.card, store.fits()


def _read_array(path: Path) -> object:
    array = load_array(path)
    return array.dtype.str, array.shape, array.tobytes()


def _read_card(path: Path) -> object:
    return read_json(path, error=PredbnError, remedy="")


def _read_checkpoint(path: Path) -> object:
    return _as_lists(read_torch_file(path, kind="a checkpoint", error=PredbnError, remedy=""))


def _as_lists(content: object) -> object:
    """The same with tensors as lists, which can be compared."""
    if isinstance(content, dict):
        return {name: _as_lists(value) for name, value in content.items()}
    return content.tolist() if hasattr(content, "tolist") else content


def _part(subject: Subject) -> Path:
    """A run that was killed before its end has parts."""
    return _left_by_kill(subject, "parts/results-*.parquet")


def _checkpoint(subject: Subject) -> Path:
    return _left_by_kill(subject, "criteo-mlp/0.checkpoint")


def _left_by_kill(subject: Subject, pattern: str) -> Path:
    out = subject.folder / "killed"
    subject.command.run(out, Stop(signal.SIGKILL, subject.accesses // 2))
    return min(out.glob(pattern))
