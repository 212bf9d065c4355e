from __future__ import annotations

import errno
import multiprocessing

import numpy as np
import pytest
import torch
from PIL import Image

from predbn.data import DataError, decoded
from predbn.data.decoded import decode, decoded_files
from predbn.data.framing import frame, read_picture
from predbn.data.listing import list_pictures

from .folders import make_folder


@pytest.fixture
def listing(tmp_path, cache):
    return list_pictures(make_folder(tmp_path / "set", ["a", "b"], each=20, height=20, width=24))


@pytest.mark.parametrize("framing", [None, frame(16), frame((8, 12), 14, "bicubic")])
def test_each_picture_is_where_a_plain_loop_puts_it(listing, framing, monkeypatch):
    monkeypatch.setattr(decoded, "_CHUNK_BYTES", 0)
    seen = []
    found = decode(listing, framing, lambda done, total: seen.append((done, total)))
    wanted = np.stack([read_picture(listing.path(k), framing) for k in range(len(listing))])
    assert torch.equal(found, torch.from_numpy(wanted).permute(0, 3, 1, 2))
    assert found.is_contiguous()
    assert seen == [(16, 40), (32, 40), (40, 40)]


def test_the_second_time_nothing_is_decoded(listing, monkeypatch):
    first = decode(listing, frame(16))
    monkeypatch.setattr(decoded, "read_picture", None)
    assert torch.equal(decode(listing, frame(16)), first)
    (path,) = decoded_files()
    assert path.name.startswith("set-")


def test_another_framing_or_a_changed_picture_is_another_file(listing):
    kept = decode(listing, frame(16)).clone()
    for framing in (frame(12), frame(16, 18), frame(16, None, "bicubic"), None):
        decode(listing, framing)
    assert len(decoded_files()) == 5
    Image.new("RGB", (24, 20), (7, 7, 7)).save(listing.path(3))
    changed = decode(listing, frame(16))
    assert (changed[3] == 7).all()
    assert torch.equal(changed[4:], kept[4:])
    assert len(decoded_files()) == 6


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_a_damaged_file_is_made_anew(listing, damage):
    wanted = decode(listing, frame(16)).clone()
    (path,) = decoded_files()
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        np.save(path, np.zeros((3, 3)))
    assert torch.equal(decode(listing, frame(16)), wanted)


def test_what_is_written_to_the_images_stays_out_of_the_file(listing):
    wanted = decode(listing, frame(16)).clone()
    decode(listing, frame(16)).zero_()
    assert torch.equal(decode(listing, frame(16)), wanted)


def test_nothing_is_left_when_it_fails(listing, cache, monkeypatch):
    with open(listing.path(5), "wb") as file:
        file.write(b"no picture")
    with pytest.raises(DataError, match=r"00005.png cannot be read as a picture \(of 40, the only one\)"):
        decode(listing, frame(16))

    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    Image.new("RGB", (24, 20)).save(listing.path(5))
    monkeypatch.setattr(decoded, "finish", full)
    with pytest.raises(DataError, match=r"cannot take the 40 decoded pictures \(No space left on device\): set PREDBN"):
        decode(listing, frame(16))
    assert [path.name for path in (cache / "decoded").iterdir() if path.name != ".lock"] == []


def one_process(root, reports):
    decode(list_pictures(root), frame(16), lambda done, total: reports.put(done))


def test_of_two_processes_one_decodes(listing):
    context = multiprocessing.get_context("spawn")
    reports = context.Queue()
    processes = [context.Process(target=one_process, args=(listing.root, reports)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert reports.get(timeout=10) == 40
    assert reports.empty()
