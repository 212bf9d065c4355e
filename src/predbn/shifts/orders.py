"""In what order a stream brings its images.

Every function gives positions into a data set, int64, each exactly once. What is drawn follows from the seed
and from what the order is about (positions, classes, domains), so that the same call gives the same stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from predbn.common import Draws, ShiftError, subseed

__all__ = ["by_class", "dirichlet", "domains", "shuffled"]

Positions = npt.NDArray[np.int64]


def shuffled(count: int, *, seed: int) -> Positions:
    """Independent and identically distributed: positions sorted by a random word each."""
    if count < 0:
        raise ShiftError(f"count is {count}, but a stream cannot have fewer than 0 images.")
    return _shuffle(np.arange(count), seed, "shuffled")


def by_class(labels: npt.ArrayLike, *, seed: int) -> Positions:
    """All of the first class, then all of the second, and so on; shuffled within a class."""
    classes = _labels(labels)
    order = _shuffle(np.arange(len(classes)), seed, "by_class")
    return order[np.argsort(classes[order], kind="stable")]


def dirichlet(labels: npt.ArrayLike, concentration: float, *, seed: int, slots: int | None = None) -> Positions:
    """Classes that come in bursts.

    The stream is cut into slots (by default as many as classes). The images of class c are shared out among
    them in proportions drawn from Dirichlet(concentration, …, concentration); within a slot they are
    shuffled. A small concentration puts most of a class into one slot, a large one comes near `shuffled`.
    """
    if not concentration > 0:
        raise ShiftError(f"concentration is {concentration}, but it must be greater than 0.")
    classes = _labels(labels)
    values = np.unique(classes)
    pieces = len(values) if slots is None else slots
    if pieces < 1 and len(classes):
        raise ShiftError(f"slots is {pieces}, but there must be at least 1.")
    slot_of = np.zeros(len(classes), dtype=np.int64)
    for value in values:
        generator = np.random.Generator(np.random.Philox(subseed(seed, "dirichlet", value)))
        members = _shuffle(np.flatnonzero(classes == value), seed, "dirichlet members")
        # A log-gamma keeps proportions apart that would all underflow to 0 at a tiny concentration.
        logs = np.log(generator.gamma(concentration + 1.0, size=pieces))
        logs += np.log(generator.random(pieces)) / concentration
        share = np.exp(logs - logs.max())
        ends = np.rint(np.cumsum(share / share.sum()) * len(members)).astype(np.int64)
        slot_of[members] = np.searchsorted(ends, np.arange(len(members)), side="right")
    order = _shuffle(np.arange(len(classes)), seed, "dirichlet order")
    return order[np.argsort(slot_of[order], kind="stable")]


def domains(sizes: Sequence[int], *, seed: int) -> npt.NDArray[np.int64]:
    """One domain after another: rows (domain, position in it) [Σ sizes, 2], each domain shuffled alone."""
    parts = []
    for domain, size in enumerate(sizes):
        if size < 0:
            raise ShiftError(f"sizes[{domain}] is {size}, but a domain cannot have fewer than 0 images.")
        order = _shuffle(np.arange(size), seed, f"domain {domain}")
        parts.append(np.stack([np.full(size, domain), order], axis=1))
    return np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.int64)


def _shuffle(positions: Positions, seed: int, name: str) -> Positions:
    """The positions sorted by two random words each; equal words would leave the order to the position."""
    words = Draws(seed, name, 0, torch.from_numpy(positions)).bits(2).numpy()
    return positions[np.lexsort((words[:, 1], words[:, 0]))]


def _labels(labels: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """One whole number an image."""
    classes = np.asarray(labels)
    if classes.ndim != 1 or (len(classes) and not np.issubdtype(classes.dtype, np.integer)):
        found = f"shape {classes.shape} and dtype {classes.dtype}"
        raise ShiftError(f"labels has {found}, but it must be a list of whole numbers.")
    return classes.astype(np.int64)
