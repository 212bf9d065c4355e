"""Small versions of the published layouts: correct ones are read, wrong ones are errors that say what is wrong."""

import numpy as np
import pytest
from PIL import Image

from predbn.data import DataError, class_mask, imagenet, resize_crop, wnids

from .folders import make_folder, pixels_of

SMALL = {"transform": resize_crop(4, 5)}
SOME = wnids()[3::5]


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    """One cache and one set of folders for all tests, because decoding a thousand pictures takes most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREDBN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield tmp_path_factory.mktemp("sets")


@pytest.fixture(scope="module")
def val(shared_folder):
    return make_folder(shared_folder / "data" / "ILSVRC" / "val", wnids())


@pytest.fixture(scope="module")
def few(shared_folder):
    root = make_folder(shared_folder / "imagenet-r", SOME, each=2)
    (root / "README.txt").write_text("as published")
    return root


def test_validation_images(val):
    images = imagenet(val, **SMALL)
    assert (images.name, images.classes, len(images)) == ("imagenet", wnids(), 1000)
    assert images.labels.tolist() == images.index.tolist() == list(range(1000))
    expected = Image.fromarray(pixels_of(7, 5, 6)).crop((1, 0, 5, 4))
    assert np.array_equal(images.images[7].permute(1, 2, 0).numpy(), np.asarray(expected))


def test_v2_labels_are_the_numbers_of_the_folders(shared_folder):
    root = make_folder(shared_folder / "v2", [str(k) for k in range(1000)])
    images = imagenet(root, "imagenet-v2", **SMALL)
    assert images.classes == wnids()
    assert images.labels.tolist() == list(range(1000))
    expected = Image.fromarray(pixels_of(10, 5, 6)).crop((1, 0, 5, 4))
    assert np.array_equal(images.images[10].permute(1, 2, 0).numpy(), np.asarray(expected))
    with pytest.raises(DataError, match=r"has no class folder of ImageNet such as n01440764, it has 0, 1, 10 and 997"):
        imagenet(root)


@pytest.mark.parametrize("which", ["imagenet-a", "imagenet-r"])
def test_a_and_r_have_200_classes_of_the_thousand(few, which):
    images = imagenet(few, which, **SMALL)
    assert (images.name, images.classes, len(images)) == (which, SOME, 400)
    assert images.labels.tolist() == [k // 2 for k in range(400)]
    positions = class_mask(images.classes).positions
    assert [positions[label] for label in images.labels] == [3 + 5 * (k // 2) for k in range(400)]


def test_a_wrong_level_is_named(val, tmp_path):
    for root in (val.parent, val / "n01440764"):
        with pytest.raises(DataError, match=r"has no class folder .*: give the folder that contains the class folders"):
            imagenet(root)
    with pytest.raises(DataError, match="is not a directory"):
        imagenet(tmp_path / "nowhere")


def test_missing_and_empty_and_foreign_classes_are_named_and_counted(tmp_path):
    for name in wnids()[2:]:
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=r"lacks 2 of the 1,000 classes of ImageNet \(n01440764, n01443537\)"):
        imagenet(tmp_path)
    for name in wnids()[:2]:
        (tmp_path / name).mkdir()
    for name in wnids()[1:-2]:
        (tmp_path / name / "1.png").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"no picture in 3 of the 1,000 classes of ImageNet \(n01440764, n13133613, n15"
    ):
        imagenet(tmp_path)
    (tmp_path / "n00000001").mkdir()
    with pytest.raises(DataError, match=r"n00000001 is not a class of ImageNet \(1 such folders\)"):
        imagenet(tmp_path)
    with pytest.raises(DataError, match=r"not a class of ImageNet-A"):
        imagenet(tmp_path, "imagenet-a")


def test_another_set_is_not_taken_for_it(val, few):
    with pytest.raises(DataError, match="has 1,000 classes of ImageNet, but ImageNet-A has 200"):
        imagenet(val, "imagenet-a")
    with pytest.raises(DataError, match="lacks 800 of the 1,000 classes"):
        imagenet(few)
    with pytest.raises(DataError, match="has no class folder of ImageNet-v2 such as 0"):
        imagenet(val, "imagenet-v2")
    with pytest.raises(DataError, match="There is no set 'imagenet-o'"):
        imagenet(val, "imagenet-o")
