"""The order of the images in a stream.

Every function returns the positions of a data set, int64, each exactly once. The same arguments always give the same
order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from predbn.common import Draws, ShiftError, derive_seed

Positions = npt.NDArray[np.int64]


def shuffled(count: int, *, seed: int) -> Positions:
    """A random permutation, so that the stream is independent and identically distributed."""
    return _shuffle(np.arange(count), seed, "shuffled")


def by_class(labels: npt.ArrayLike, *, seed: int) -> Positions:
    """All of the first class, then all of the second, and so on; shuffled within a class."""
    classes = _check_labels(labels)
    order = _shuffle(np.arange(len(classes)), seed, "by_class")
    return order[np.argsort(classes[order], kind="stable")]


def dirichlet(labels: npt.ArrayLike, concentration: float, *, seed: int) -> Positions:
    """Classes that come in bursts.

    The stream is cut into as many slots as there are classes. The images of a class are distributed among them in
    proportions drawn from Dirichlet(concentration, …, concentration) and shuffled within a slot. A small
    concentration puts most of a class into one slot; a large one gives almost the same as `shuffled`.
    """
    if not 0 < concentration < np.inf:
        raise ShiftError(f"concentration is {concentration}, but it must be finite and greater than 0.")
    classes = _check_labels(labels)
    values = np.unique(classes)
    slot_of = np.zeros(len(classes), dtype=np.int64)
    for value in values:
        generator = np.random.Generator(np.random.Philox(derive_seed(seed, "dirichlet", value)))
        members = _shuffle(np.flatnonzero(classes == value), seed, "dirichlet members")
        # In logarithms, because at a tiny concentration all proportions would underflow to 0.
        logs = np.log(generator.gamma(concentration + 1.0, size=len(values)))
        logs += np.log(generator.random(len(values))) / max(concentration, 1e-300)
        share = np.exp(logs - logs.max())
        ends = np.rint(np.cumsum(share / share.sum()) * len(members)).astype(np.int64)
        slot_of[members] = np.searchsorted(ends, np.arange(len(members)), side="right")
    order = _shuffle(np.arange(len(classes)), seed, "dirichlet order")
    return order[np.argsort(slot_of[order], kind="stable")]


def markov(labels: npt.ArrayLike, stay: float, *, seed: int) -> Positions:
    """Classes that follow a Markov chain: the next image has the same class with probability `stay`.

    Otherwise it has another one, in proportion to how many images of each are left. With K classes of the same size,
    1/K is almost the same as `shuffled`. If class k has the share w_k of the images, it is left with probability

        (1 − stay)·(1 − w_k) / (1 − Σ_j w_j²)

    which is 1 − stay on average, and for all classes if they have the same size. The stationary shares of the chain
    are then w, so that large classes are not left over for the end. A class is left too when it has no more images.
    """
    if not 0 <= stay < 1:
        raise ShiftError(f"stay is {stay}, but it must be a probability below 1.")
    classes = _check_labels(labels)
    values, numbers = np.unique(classes, return_inverse=True)
    left = np.bincount(numbers, minlength=len(values))
    share = left / max(1, len(classes))
    leave = (1 - stay) * (1 - share) / max(1 - (share**2).sum(), np.finfo(float).tiny)
    whether, where = Draws(seed, "markov", 0, torch.arange(len(classes))).uniform(2).double().numpy().T
    visited = np.empty(len(classes), dtype=np.int64)
    current = -1
    for step in range(len(classes)):
        if current < 0 or whether[step] < leave[current] or not left[current]:
            ends = np.cumsum(np.where(np.arange(len(values)) == current, 0, left))
            if ends[-1]:
                current = int(np.searchsorted(ends, where[step] * ends[-1], side="right"))
        left[current] -= 1
        visited[step] = current
    # The n-th visit to a class is its n-th image in the order of `by_class`, which is a random one.
    order = np.empty(len(classes), dtype=np.int64)
    order[np.argsort(visited, kind="stable")] = by_class(classes, seed=seed)
    return order


def _shuffle(positions: Positions, seed: int, name: str) -> Positions:
    """Sort the positions by two random words each; with one 32-bit word, a large data set would have ties."""
    words = Draws(seed, name, 0, torch.from_numpy(positions)).bits(2).numpy()
    return positions[np.lexsort((words[:, 1], words[:, 0]))]


def _check_labels(labels: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The labels as int64, after checking that there is one integer per image."""
    classes = np.asarray(labels)
    if classes.ndim != 1 or (len(classes) and not np.issubdtype(classes.dtype, np.integer)):
        actual = f"shape {classes.shape} and dtype {classes.dtype}"
        raise ShiftError(f"labels has {actual}, but it must be a list of integers.")
    return classes.astype(np.int64)
