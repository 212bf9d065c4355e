"""Whether a folder is the ImageNet set that it is taken for, said before an hour is spent on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from predbn.common import DataError

from .listing import Listing, class_folders, is_picture, list_pictures
from .wnids import is_wnid, wnids

__all__ = ["list_all_classes", "list_some_classes"]

_LEVELS_BELOW = 3


def list_all_classes(root: Path, what: str, folders: Sequence[str], looks_like: Callable[[str], bool]) -> Listing:
    """The pictures of a set that has a folder for each of these classes; what is missing is named and counted."""
    found = _found(root, what, folders)
    _name("is no class of", sorted(name for name in found - set(folders) if looks_like(name)), root, what)
    missing = [name for name in folders if name not in found]
    if missing:
        raise DataError(
            f"{root} lacks {len(missing)} of the {len(folders):,} classes of {what} ({_some(missing)}): "
            "unpack it again."
        )
    return _without_empty(list_pictures(root, folders), what)


def list_some_classes(root: Path, what: str, count: int) -> Listing:
    """The pictures of a set with `count` of ImageNet's classes, each in a folder named by its WordNet number."""
    found = _found(root, what, wnids())
    _name("is no class of", sorted(name for name in found - set(wnids()) if is_wnid(name)), root, "ImageNet")
    classes = [name for name in wnids() if name in found]
    if len(classes) != count:
        raise DataError(f"{root} has {len(classes):,} classes of ImageNet, but {what} has {count}: is it another set?")
    return _without_empty(list_pictures(root, classes), what)


def _found(root: Path, what: str, folders: Sequence[str]) -> set[str]:
    """The folders right below, if any is a class; else where the classes are, as far as can be seen."""
    found, wanted = set(class_folders(root)), frozenset(folders)
    if found & wanted:
        return found
    place = root.resolve()
    if place.name in wanted:
        raise DataError(f"{root} is one class of {what}: point at the folder above it, {place.parent}.")
    below = _below(root, wanted, _LEVELS_BELOW)
    if below is not None:
        raise DataError(f"{root} is not the folder with the classes of {what}: point at {below}.")
    loose = sum(is_picture(entry.name) for entry in os.scandir(root))
    if loose:
        raise DataError(
            f"{root} has {loose:,} pictures that are not in class folders: {what} is read as <class>/<picture>, "
            f"with classes such as {folders[0]}; sort them into folders first."
        )
    instead = "its folders are WordNet numbers" if any(map(is_wnid, found)) else f"it has {_some(sorted(found))}"
    raise DataError(f"{root} has no class folder of {what} such as {folders[0]}: {instead}.")


def _below(root: Path, wanted: Collection[str], levels: int) -> Path | None:
    """The nearest folder below that has a class, not looking far."""
    folders = [root / name for name in class_folders(root)[:50]]
    for folder in folders:
        with contextlib.suppress(PermissionError):
            if any(name in wanted for name in class_folders(folder)):
                return folder
    for folder in folders if levels > 1 else []:
        with contextlib.suppress(PermissionError):
            found = _below(folder, wanted, levels - 1)
            if found is not None:
                return found
    return None


def _without_empty(listing: Listing, what: str) -> Listing:
    empty = [listing.classes[k] for k, count in enumerate(listing.labels.bincount().tolist()) if not count]
    empty += listing.classes[int(listing.labels.max()) + 1 :]
    if empty:
        raise DataError(
            f"{listing.root} has no picture in {len(empty)} of the {len(listing.classes):,} classes of {what} "
            f"({_some(empty)}): unpack it again."
        )
    return listing


def _name(fault: str, names: Sequence[str], root: Path, what: str) -> None:
    if names:
        raise DataError(f"{root / names[0]} {fault} {what} ({len(names)} such folders): move what is not part of it.")


def _some(names: Sequence[str]) -> str:
    """The first few of many names."""
    shown = ", ".join(names[:3]) or "none"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
