from __future__ import annotations

import os

import pytest

from predbn.common.errors import DataError
from predbn.data.listing import class_folders, list_pictures

from .folders import make_folder


def test_pictures_are_listed_by_class_and_name(tmp_path):
    root = make_folder(tmp_path / "set", ["b", "a"], each=2)
    (root / "a" / "notes.txt").write_text("no picture")
    (root / "a" / "._00002.png").write_text("what a Mac leaves beside a picture")
    (root / ".hidden").mkdir()
    (root / "c").mkdir()
    listing = list_pictures(root)
    assert (listing.classes, class_folders(root)) == (("a", "b", "c"), ["a", "b", "c"])
    assert listing.names == ["a/00002.png", "a/00003.png", "b/00000.png", "b/00001.png"]
    assert listing.labels.tolist() == [0, 0, 1, 1]
    assert os.path.samefile(listing.path(2), root / "b" / "00000.png")
    assert list_pictures(root, ["b", "a"]).labels.tolist() == [0, 0, 1, 1]
    assert list_pictures(root, ["b", "a"]).names[0] == "b/00000.png"


def test_the_fingerprint_sees_every_change(tmp_path):
    root = make_folder(tmp_path / "set", ["a", "b"])
    seen = [list_pictures(root).fingerprint()]
    assert list_pictures(root).fingerprint() == seen[0]
    os.utime(root / "a" / "00000.png", (1, 1))
    seen.append(list_pictures(root).fingerprint())
    (root / "a" / "00000.png").rename(root / "b" / "00000.png")
    seen.append(list_pictures(root).fingerprint())
    (root / "b" / "00000.png").unlink()
    seen.append(list_pictures(root).fingerprint())
    assert len(set(seen)) == 4
    moved = root.rename(tmp_path / "moved")
    assert list_pictures(moved).fingerprint() == seen[-1]


def test_nothing_to_list_is_said(tmp_path):
    with pytest.raises(DataError, match="is not a directory"):
        list_pictures(tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no pictures in class folders"):
        list_pictures(tmp_path)
