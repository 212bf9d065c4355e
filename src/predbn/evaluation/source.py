"""The data of a plan, opened: every split of it as a stream of batches.

Pictures and rows of a table have one interface, `Source`. What differs between them (which shifts and severities there
are, what is read from where, whether an AUC is measured) is in the two classes below and nowhere else.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from predbn.common import EvaluationError
from predbn.data import (
    CLEAN,
    PERCENTAGES,
    SEVERITIES,
    Corrupted,
    ImageBatch,
    Images,
    Randomised,
    ReferenceAndData,
    RowBatch,
    Rows,
    ShiftedDataset,
    is_tabular,
    rows_to_device,
    sha256_of,
    wnids,
)
from predbn.shifts import find_corruption
from predbn.shifts import names as corruption_names

from .changing_shift import SETS, ChangingShift
from .splits import Split, Stream, attack_of, check_order, make_stream, positions, resolve

AnyBatch = ImageBatch | RowBatch
"""Pictures or rows: `inputs`, `labels` and `index` are what both have."""
AnyData = Images | ShiftedDataset | Rows | Randomised | ReferenceAndData
"""Clean pictures or rows, which are shifted on the fly, a set of splits, or pictures before and after a real shift."""
Inputs = Literal["pictures", "rows"]

REFERENCE, DATA = Split("reference", 0), Split("data", 1)
"""The two splits of a real shift: what the model knows, and the new data."""

_MAX_BYTES_ON_DEVICE, _BYTES_PER_ROW = 1 << 32, 160


class Source(ABC):
    """Clean data that is shifted on the fly, or a published set of splits.

    name, classes, labels  of the data
    names                  of the shifts that it has, without "clean"
    has_clean              whether there is a clean split; published files do not contain it
    data                   what it was made from; this is what travels to other processes

    Everything random follows from the seed of the stream and from the index of each image or row.
    """

    inputs: ClassVar[Inputs]
    """What the models of a plan with such data take."""
    counted: ClassVar[Literal["images", "rows"]]
    """What the run card counts."""
    severities: ClassVar[tuple[int, ...]]
    severities_in_words: ClassVar[str]
    has_auc: ClassVar[bool]
    """Whether the order of the predicted probabilities is measured too."""

    def __init__(
        self,
        data: AnyData,
        splits: ShiftedDataset | Randomised | Images,
        images: int | None,
        device: torch.device | str,
        names: Sequence[str] | None = None,
    ) -> None:
        self.data, self.device, self._count = data, torch.device(device), images
        self.name, self.classes, self.labels = data.name, splits.classes, splits.labels
        self.names = list(getattr(splits, "names", ()) if names is None else names)
        self.has_clean = getattr(splits, "clean", data) is not None

    def __len__(self) -> int:
        return len(self.labels) if self._count is None else self._count

    def splits(self, shifts: Sequence[str], severities: Sequence[int]) -> list[Split]:
        """The splits that names of shifts stand for."""
        registered = corruption_names("own") if isinstance(self.data, Images) else ()
        return resolve(shifts, severities, self.names, has_clean=self.has_clean, registered=registered)

    def is_labelled(self, split: Split) -> bool:
        return True

    @staticmethod
    @abstractmethod
    def check_shift(shift: str) -> None:
        """Raise an error if such data has no shift of that name."""

    @classmethod
    def check_severity(cls, severity: int) -> None:
        """Raise an error if shifts of such data do not have that severity."""
        if isinstance(severity, bool) or severity not in cls.severities:
            raise EvaluationError(f"severity {severity!r} is not {cls.severities_in_words}.")

    @staticmethod
    def check_order(order: str) -> None:
        """Raise an error if such data cannot be visited in that order."""
        check_order(order)

    def describe(self) -> dict[str, Any]:
        """The data, for the run card: how many, the classes, and checksums to recognise it by."""
        known = {"name": self.name, self.counted: len(self), "of": len(self.labels), "classes": len(self.classes)}
        if self.classes == wnids():
            known["benchmark"] = "ImageNet"
        return {**known, "corruptions": self._origin(), "sha256": self._checksums()}

    @abstractmethod
    def _origin(self) -> str: ...

    @abstractmethod
    def _checksums(self) -> dict[str, str]: ...

    @abstractmethod
    def move_to_device(self) -> None:
        """Keep the clean data on the GPU from now on, if the device is one and the data fits."""

    def stream(self, split: Split, order: str, seed: int, size: int) -> Iterator[AnyBatch]:
        """The images or rows of a split in an order, `size` of them at a time, on the device."""
        self.check_order(order)
        return self._batches(split, seed, positions(order, self.labels, seed, self._count), size)

    @abstractmethod
    def _batches(self, split: Split, seed: int, visited: Tensor, size: int) -> Iterator[AnyBatch]: ...

    def _fits_on_device(self, nbytes: int) -> bool:
        return self.device.type == "cuda" and nbytes <= _MAX_BYTES_ON_DEVICE


class PictureSource(Source):
    """Pictures: clean ones that are corrupted on the fly, or published corruptions."""

    inputs, counted, has_auc = "pictures", "images", False
    severities, severities_in_words = SEVERITIES, "an integer from 1 to 5"

    def __init__(
        self, data: Images | ShiftedDataset, *, images: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        self._splits: ShiftedDataset = Corrupted(data) if isinstance(data, Images) else data
        super().__init__(data, self._splits, images, device)

    @staticmethod
    def check_shift(shift: str) -> None:
        if shift not in (*SETS, CLEAN) and ChangingShift.parse(shift) is None:
            find_corruption(shift)

    @cached_property
    def _clean(self) -> Images | None:
        """The images to corrupt, on the device if they fit; None if the corruptions are published."""
        if not isinstance(self.data, Images):
            return None
        return self.data.to(self.device) if self._fits_on_device(self.data.images.nbytes) else self.data

    def move_to_device(self) -> None:
        _ = self._clean

    def stream(self, split: Split, order: str, seed: int, size: int) -> Iterator[AnyBatch]:
        if attack_of(order) and isinstance(self.data, Images) and self.data.is_prepared:
            raise EvaluationError(f"order {order!r} changes pixels, and {self.name} has none: leave it out.")
        return super().stream(split, order, seed, size)

    def _origin(self) -> str:
        return "corrupted on the fly" if isinstance(self.data, Images) else "as published"

    def _checksums(self) -> dict[str, str]:
        if isinstance(self.data, Images):
            return dict(self.data.sums)
        root = getattr(self.data, "root", None)
        if root is None:
            return {"labels": sha256_of(self.labels)}
        # Reading all published files takes too long: their names and sizes have to do. Hidden files are not data:
        # the lock that `predbn corrupt` leaves behind is one.
        paths = [path for path in sorted(Path(root).glob("*")) if not path.name.startswith(".")]
        listing = "\n".join(f"{path.name} {path.stat().st_size if path.is_file() else ''}" for path in paths)
        return {"labels": sha256_of(self.labels), "listing": hashlib.sha256(listing.encode()).hexdigest()}

    def _batches(self, split: Split, seed: int, visited: Tensor, size: int) -> Iterator[ImageBatch]:
        splits = self._splits if self._clean is None else Corrupted(self._clean, seed=seed)
        stream = make_stream(split, visited, splits.index, self.names, seed)
        if len(stream.splits) == 1:
            ((corruption, severity),) = stream.splits
            return splits.batches(corruption, severity, size, order=stream.positions, device=self.device)
        return self._joined_batches(splits, stream, size)

    def _joined_batches(self, data: ShiftedDataset, stream: Stream, size: int) -> Iterator[ImageBatch]:
        """Batches with images of several splits: those of each split are read together, and put in their places."""
        for numbers, step in zip(stream.numbers.split(size), stream.positions.split(size), strict=True):
            images: Tensor | None = None
            for number in numbers.unique().tolist():
                rows = (numbers == number).nonzero().squeeze(1)
                corruption, severity = stream.splits[number]
                (part,) = data.batches(corruption, severity, len(rows), order=step[rows], device=self.device)
                if images is None:
                    images = part.images.new_empty((len(step), *part.images.shape[1:]))
                images[rows.to(self.device)] = part.images
            yield ImageBatch(cast(Tensor, images), rows_to_device(data.labels, step, self.device), data.index[step])


class RealShiftSource(Source):
    """Images from before and after a real shift, which are different images, each in order of arrival."""

    inputs, counted, has_auc = "pictures", "images", False
    severities, severities_in_words = (), "there are none"

    def __init__(
        self, data: ReferenceAndData, *, images: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        shifted = data.data if images is None else data.data.take(min(images, len(data.data)))
        self._images = {REFERENCE: data.reference, DATA: shifted}
        super().__init__(data, shifted, None, device, names=[DATA.corruption])
        self.classes = data.classes

    @staticmethod
    def check_shift(shift: str) -> None:
        raise EvaluationError(f"real data has no shift {shift!r}: it is the shift.")

    def splits(self, shifts: Sequence[str], severities: Sequence[int]) -> list[Split]:
        return list(self._images)

    def is_labelled(self, split: Split) -> bool:
        return self._images[split].is_labelled

    def move_to_device(self) -> None:
        for split, images in self._images.items():
            if self._fits_on_device(images.images.nbytes):
                self._images[split] = images.to(self.device)

    def describe(self) -> dict[str, Any]:
        known = {
            split.corruption: {"name": images.name, self.counted: len(images), "labelled": images.is_labelled}
            for split, images in self._images.items()
        }
        return {**super().describe(), "class_names": list(self.classes), **known}

    def _origin(self) -> str:
        return "none: the data is as it came"

    def _checksums(self) -> dict[str, str]:
        return {
            f"{split.corruption} {what}": value
            for split, images in self._images.items()
            for what, value in images.sums.items()
        }

    def stream(self, split: Split, order: str, seed: int, size: int) -> Iterator[AnyBatch]:
        images = self._images[split]
        if order not in ("official", "shuffled") and not images.is_labelled:
            raise EvaluationError(
                f"order {order!r} needs labels, and {images.name} has none: use official or shuffled."
            )
        return self._batches(split, seed, positions(order, images.labels, seed), size)

    def _batches(self, split: Split, seed: int, visited: Tensor, size: int) -> Iterator[AnyBatch]:
        return self._images[split].batches(size, order=visited, device=self.device)


class RowSource(Source):
    """Rows of a table, randomised on the fly. Severities are percentages."""

    inputs, counted, has_auc = "rows", "rows", True
    severities, severities_in_words = PERCENTAGES, f"one of the percentages {PERCENTAGES}"
    shifts = ("tokens", "columns", "marginals")

    def __init__(
        self, data: Rows | Randomised, *, images: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        self._splits = Randomised(data) if isinstance(data, Rows) else data
        super().__init__(data, self._splits, images, device)

    @staticmethod
    def check_shift(shift: str) -> None:
        if shift not in ("all", CLEAN, *RowSource.shifts):
            raise EvaluationError(f"rows have no shift {shift!r}: use all, {CLEAN}, {', '.join(RowSource.shifts)}.")

    @staticmethod
    def check_order(order: str) -> None:
        if attack_of(order) is not None:
            raise EvaluationError(f"rows have no order {order!r}: only pictures can be attacked.")
        check_order(order)

    @cached_property
    def _randomised(self) -> Randomised:
        """The rows to randomise, on the device if they fit."""
        is_moved = self._fits_on_device(len(self._splits) * _BYTES_PER_ROW)
        return self._splits.to(self.device) if is_moved else self._splits

    def move_to_device(self) -> None:
        _ = self._randomised

    def _origin(self) -> str:
        return f"randomised on the fly, columns for {self._splits.block} rows at once"

    def _checksums(self) -> dict[str, str]:
        return self._splits.sums

    def _batches(self, split: Split, seed: int, visited: Tensor, size: int) -> Iterator[RowBatch]:
        if ChangingShift.parse(split.corruption):
            raise EvaluationError(
                f"rows have no {split.corruption}: only pictures have mixtures and shifts that change."
            )
        rows = self._randomised.seeded(seed)
        return rows.batches(split.corruption, split.severity, size, order=visited, device=self.device)


def source_class(reference: str) -> type[Source]:
    return RowSource if is_tabular(reference) else PictureSource


def make_source(data: AnyData, *, images: int | None = None, device: torch.device | str = "cpu") -> Source:
    """A source for data that is open already."""
    if isinstance(data, ReferenceAndData):
        return RealShiftSource(data, images=images, device=device)
    if isinstance(data, Rows | Randomised):
        return RowSource(data, images=images, device=device)
    return PictureSource(data, images=images, device=device)
