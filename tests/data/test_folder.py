import errno
import multiprocessing

import numpy as np
import pytest
import torch
from PIL import Image

from predbn.data import DataError, decoded_files, from_folder, list_pictures, read_picture, resize_crop
from predbn.data import folder as module
from predbn.data.folder import decode

from .folders import make_folder


@pytest.fixture
def folder(tmp_path, cache):
    root = tmp_path / "pets"
    for name, count in (("dog", 2), ("cat", 3)):
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = np.random.default_rng(i).integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    (root / "cat" / "notes.txt").write_text("not a picture")
    return root


def test_pictures_come_sorted_by_class_and_name(folder):
    steps = []
    images = from_folder(folder, progress=lambda done, total: steps.append((done, total)))
    assert (images.name, images.classes, images.labels.tolist()) == ("pets", ("cat", "dog"), [0, 0, 0, 1, 1])
    assert steps == [(5, 5)]
    (batch,) = images.batches(9)
    names = ["cat/0", "cat/1", "cat/2", "dog/0", "dog/1"]
    for image, name in zip(batch.images, names, strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), np.asarray(Image.open(folder / f"{name}.png")))
    assert images.images.is_contiguous()


def test_mixed_sizes_are_named_and_counted(folder):
    for i in (5, 6):
        Image.new("RGB", (8, 9)).save(folder / "dog" / f"{i}.png")
    with pytest.raises(DataError, match=r"5.png is 9×8 pixels, but .*cat/0.png is 20×24: give a size"):
        from_folder(folder)


def test_a_folder_without_pictures_is_an_error(tmp_path, folder):
    with pytest.raises(DataError, match="is not a directory"):
        from_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no pictures in class folders"):
        from_folder(folder / "cat")


def test_a_cache_folder_without_room_is_named(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match="set PREDBN_CACHE to a folder that has"):
        from_folder(folder)


@pytest.fixture
def listing(tmp_path, cache):
    return list_pictures(make_folder(tmp_path / "set", ["a", "b"], each=20, height=20, width=24))


@pytest.mark.parametrize("transform", [None, resize_crop(16), resize_crop((8, 12), 14, "bicubic")])
def test_each_picture_is_where_a_plain_loop_puts_it(listing, transform, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_BYTES", 0)
    steps = []
    decoded = decode(listing, transform, lambda done, total: steps.append((done, total)))
    expected = np.stack([read_picture(listing.path(k), transform) for k in range(len(listing))])
    assert torch.equal(decoded, torch.from_numpy(expected).permute(0, 3, 1, 2))
    assert decoded.is_contiguous()
    assert steps == [(16, 40), (32, 40), (40, 40)]


def test_the_second_time_nothing_is_decoded(listing, monkeypatch):
    first = decode(listing, resize_crop(16))
    monkeypatch.setattr(module, "read_picture", None)
    assert torch.equal(decode(listing, resize_crop(16)), first)
    (path,) = decoded_files()
    assert path.name.startswith("set-")


def test_another_size_or_a_changed_picture_is_another_file(listing):
    original = decode(listing, resize_crop(16)).clone()
    for transform in (resize_crop(12), resize_crop(16, 18), resize_crop(16, None, "bicubic"), None):
        decode(listing, transform)
    assert len(decoded_files()) == 5
    Image.new("RGB", (24, 20), (7, 7, 7)).save(listing.path(3))
    changed = decode(listing, resize_crop(16))
    assert (changed[3] == 7).all()
    assert torch.equal(changed[4:], original[4:])
    assert len(decoded_files()) == 6


@pytest.mark.parametrize("damage", ["cut", "other", "flip"])
def test_a_damaged_file_is_made_anew(listing, damage):
    expected = decode(listing, resize_crop(16)).clone()
    (path,) = decoded_files()
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif damage == "flip":
        content = bytearray(path.read_bytes())
        content[9000] ^= 16
        path.write_bytes(content)
    else:
        np.save(path, np.zeros((3, 3)))
    assert torch.equal(decode(listing, resize_crop(16)), expected)


def test_nothing_is_left_when_it_fails(listing, cache, monkeypatch):
    with open(listing.path(5), "wb") as file:
        file.write(b"no picture")
    with pytest.raises(DataError, match=r"00005.png cannot be read as a picture: it is none of"):
        decode(listing, resize_crop(16))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    Image.new("RGB", (24, 20)).save(listing.path(5))
    monkeypatch.setattr("predbn.common.files.finish_partial", full)
    with pytest.raises(DataError, match=r"cannot store the 40 decoded pictures \(No space left on device\): set"):
        decode(listing, resize_crop(16))
    assert [path.name for path in (cache / "decoded").iterdir() if path.name != ".lock"] == []


def one_process(root, reports):
    decode(list_pictures(root), resize_crop(16), lambda done, total: reports.put(done))


def test_only_one_of_two_processes_decodes(listing):
    context = multiprocessing.get_context("fork")
    reports = context.Queue()
    processes = [context.Process(target=one_process, args=(listing.root, reports)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert reports.get(timeout=10) == 40
    assert reports.empty()
