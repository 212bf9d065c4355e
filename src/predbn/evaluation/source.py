"""The plan's data, opened: every split of it as a stream of batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from predbn.common import Draws, EvaluationError
from predbn.data import (
    Batch,
    Cifar10C,
    Corrupted,
    ImageNetC,
    Images,
    Randomised,
    Rows,
    Shifted,
    cifar10,
    from_folder,
    from_npy,
    pick,
    sample,
    sha256_of,
    wnids,
)
from predbn.data import DecodingProgress as Report
from predbn.models import Preprocessing

from .imagenet_data import framing_of, is_imagenet, open_imagenet, open_published
from .rebatch import AnyBatch
from .splits import Split, mixed_kinds, positions

__all__ = ["AnyData", "Source", "open_images", "open_source"]

AnyData = Images | Shifted | Rows | Randomised
"""Pictures or rows, clean ones (which are shifted when they are asked for) or a set of splits."""

_HELD_ON_DEVICE, _BYTES_A_ROW = 1 << 32, 160


class Source:
    """Clean images or rows that are shifted when they are asked for, or a published set of splits.

    Everything random follows from the seed of the stream and from each image's index.
    """

    def __init__(self, data: AnyData, *, images: int | None = None, device: torch.device | str = "cpu") -> None:
        self.data, self.device = data, torch.device(device)
        self._clean = data if isinstance(data, Images) else None
        shifted = _shifted(data)
        self._shifted, self._images = shifted, images
        self.is_tabular = isinstance(shifted, Randomised)
        self.name, self.classes, self.names = data.name, shifted.classes, shifted.names
        self.labels = shifted.labels
        self._held: Images | Randomised | None = None

    @property
    def has_clean(self) -> bool:
        """Whether there is a clean split; published files do not hold it."""
        return not (isinstance(self._shifted, Cifar10C | ImageNetC) and self._shifted.clean is None)

    def __len__(self) -> int:
        """How many images a split has."""
        return len(self.labels) if self._images is None else self._images

    def describe(self) -> dict[str, Any]:
        """What the data is, for the run card: number, classes, and sums by which to know it again."""
        known = {"name": self.name, "images": len(self), "of": len(self.labels), "classes": len(self.classes)}
        if self.classes == wnids():
            known["benchmark"] = "ImageNet"
        if isinstance(self._shifted, Randomised):
            known["rows"] = known.pop("images")
            kind = f"randomised on the fly, columns for {self._shifted.block} rows at once"
        else:
            kind = "corrupted on the fly" if self._clean is not None else "as published"
        return {**known, "corruptions": kind, "sha256": self._sums()}

    def _sums(self) -> dict[str, str]:
        if self._clean is not None:
            return dict(self._clean.sums)
        if isinstance(self._shifted, Randomised):
            return self._shifted.sums
        root = getattr(self._shifted, "root", None)
        if root is None:
            return {"labels": sha256_of(self.labels)}
        listing = "\n".join(f"{p.name} {p.stat().st_size if p.is_file() else ''}" for p in sorted(Path(root).glob("*")))
        return {"labels": sha256_of(self.labels), "listing": hashlib.sha256(listing.encode()).hexdigest()}

    def stream(self, split: Split, order: str, seed: int, size: int) -> Iterator[AnyBatch]:
        """The images of a split in the order of the stream, `size` at a time, on the device."""
        visited = positions(order, self.labels, seed, self._images)
        shifted = self._seeded(seed)
        kinds = mixed_kinds(split, self.names, seed)
        if kinds is None:
            return shifted.batches(split.corruption, split.severity, size, order=visited, device=self.device)
        if isinstance(shifted, Randomised):
            raise EvaluationError(f"rows have no {split.corruption}: mixtures are of pictures.")
        return self._mixed(shifted, kinds, split.severity, seed, visited, size)

    def _seeded(self, seed: int) -> Shifted | Randomised:
        held = self.hold()
        if isinstance(held, Randomised):
            return held.seeded(seed)
        return self._shifted if held is None else Corrupted(held, seed=seed)

    def hold(self) -> Images | Randomised | None:
        """What is shifted when it is asked for, on the device from now on if it fits there; None where splits are
        published."""
        if self._held is None and (self._clean is not None or isinstance(self._shifted, Randomised)):
            whole: Images | Randomised = self._shifted if self._clean is None else self._clean  # type: ignore[assignment]
            size = whole.images.nbytes if isinstance(whole, Images) else len(whole) * _BYTES_A_ROW
            fits = self.device.type == "cuda" and size <= _HELD_ON_DEVICE
            self._held = whole.to(self.device) if fits else whole
        return self._held

    def _mixed(
        self, shifted: Shifted, kinds: list[str], severity: int, seed: int, visited: Tensor, size: int
    ) -> Iterator[Batch]:
        """Every image under the kind that it draws, all equally likely, as `predbn.shifts.mix` draws them."""
        for step in visited.split(size):
            index = shifted.index[step]
            which = Draws(seed, "mixture", 0, index).integers(0, len(kinds))
            images: Tensor | None = None
            for number, kind in enumerate(kinds):
                mine = (which == number).nonzero().squeeze(1)
                if len(mine) == 0:
                    continue
                (part,) = shifted.batches(kind, severity, len(mine), order=step[mine], device=self.device)
                if images is None:
                    images = part.images.new_empty((len(step), *part.images.shape[1:]))
                images[mine.to(self.device)] = part.images
            yield Batch(cast(Tensor, images), pick(shifted.labels, step, self.device), index)


def _shifted(data: AnyData) -> Shifted | Randomised:
    if isinstance(data, Images):
        return Corrupted(data)
    return Randomised(data) if isinstance(data, Rows) else data


def open_source(
    reference: str,
    clean: str | None = None,
    *,
    preprocessing: Preprocessing | None = None,
    report: Report | None = None,
) -> Images | Shifted:
    """The data that a plan names. Pictures of a folder are resized and cropped as the models want them; `report` gets
    how many of them are decoded, and of how many."""
    root = Path(reference).expanduser()
    if reference.startswith("imagenet-c:"):
        return open_published(reference, clean, preprocessing)
    if _is_named(reference) or not root.exists() or (root / "images.npy").exists():
        return open_images(reference, "test", preprocessing=preprocessing, report=report)
    if (root / "labels.npy").exists():
        return Cifar10C(root, clean=None if clean is None else open_images(clean, "test"))
    if any((folder / "1").is_dir() for folder in root.glob("*")):
        return ImageNetC(root, clean=clean, **framing_of(preprocessing))
    return open_images(reference, "test", preprocessing=preprocessing, report=report)


def open_images(
    reference: str, part: str, *, preprocessing: Preprocessing | None = None, report: Report | None = None
) -> Images:
    """Labelled images by reference; `part` ("test" or "validation") is for the data sets that have parts."""
    kind, _, path = reference.partition(":")
    if reference == "sample":
        return sample(part)  # type: ignore[arg-type]
    if kind == "cifar10":
        return cifar10(part, path or None)  # type: ignore[arg-type]
    if is_imagenet(reference):
        return open_imagenet(reference, preprocessing, report)
    root = Path(reference).expanduser()
    if not root.exists():
        raise EvaluationError(
            f"data {reference!r} is neither sample, cifar10, cifar10:PATH, imagenet:PATH nor a folder that exists."
        )
    if (root / "images.npy").exists():
        return from_npy(root)
    return from_folder(root, report=report, **framing_of(preprocessing))


def _is_named(reference: str) -> bool:
    return reference.partition(":")[0] in ("sample", "cifar10") or is_imagenet(reference)
