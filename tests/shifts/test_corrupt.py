"""`corrupt`: an image is corrupted in the same way in every batch, and wrong input gives a one-sentence error."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from predbn.shifts import ShiftError, corrupt, get_corruption, names

Images = npt.NDArray[np.uint8]
ALL = names("all")

# Mean absolute change in grey levels at severities 1 to 5, made with the benchmark authors' own generator
# on the first 2,000 CIFAR-10 test images.
CHANGE = {
    "gaussian_noise": (7.99, 11.90, 15.74, 17.63, 19.52),
    "shot_noise": (5.94, 8.35, 13.08, 15.04, 18.28),
    "impulse_noise": (1.27, 2.56, 3.83, 6.37, 8.91),
    "defocus_blur": (1.38, 3.32, 5.01, 6.52, 9.30),
    "glass_blur": (11.16, 11.28, 11.09, 18.13, 17.38),
    "motion_blur": (7.06, 10.44, 13.06, 13.06, 15.30),
    "zoom_blur": (8.79, 10.36, 12.37, 14.44, 16.43),
    "snow": (10.67, 23.50, 25.18, 36.88, 51.13),
    "frost": (30.49, 44.32, 49.77, 45.03, 43.59),
    "fog": (10.71, 21.51, 27.51, 32.50, 38.95),
    "brightness": (10.01, 20.24, 30.01, 39.22, 55.63),
    "contrast": (10.63, 21.25, 25.50, 29.74, 36.12),
    "elastic_transform": (21.86, 19.95, 17.90, 16.59, 13.56),
    "pixelate": (1.79, 3.40, 4.12, 6.23, 8.65),
    "jpeg_compression": (5.32, 6.58, 7.01, 7.47, 8.09),
    "speckle_noise": (5.70, 9.38, 11.19, 14.75, 18.22),
    "gaussian_blur": (1.34, 4.91, 6.28, 7.45, 9.47),
    "spatter": (1.02, 2.75, 6.68, 3.08, 5.11),
    "saturate": (11.68, 15.08, 8.09, 20.35, 29.53),
}


@pytest.mark.parametrize("name", ALL)
def test_changes_images_as_much_as_the_benchmark_does(name: str, cifar: Images) -> None:
    for severity, expected in enumerate(CHANGE[name], start=1):
        done = corrupt(cifar, name, severity, seed=0, index=np.arange(len(cifar)))
        assert np.abs(done.astype(np.int16) - cifar).mean() == pytest.approx(expected, rel=0.03), severity


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", ALL)
def test_does_not_depend_on_batch_order_or_threads(name: str, constants: str, cifar: Images) -> None:
    images, index = cifar[:41], np.arange(41) * 7 + 3
    whole = corrupt(images, name, 4, seed=1, index=index, constants=constants)
    order = np.random.default_rng(0).permutation(41)
    shuffled = corrupt(images[order], name, 4, seed=1, index=index[order], constants=constants)
    assert np.array_equal(shuffled, whole[order])
    parts = [
        corrupt(images[i : i + 13], name, 4, seed=1, index=index[i : i + 13], constants=constants)
        for i in range(0, 41, 13)
    ]
    assert np.array_equal(np.concatenate(parts), whole)
    torch.set_num_threads(2)
    assert np.array_equal(corrupt(images, name, 4, seed=1, index=index, constants=constants), whole)


@pytest.mark.parametrize("name", ALL)
def test_does_not_depend_on_the_batch_at_224_pixels(name: str, large: Images) -> None:
    whole = corrupt(large[:2], name, 2, seed=1, index=[5, 6])
    alone = [corrupt(large[i : i + 1], name, 2, seed=1, index=[5 + i]) for i in range(2)]
    assert np.array_equal(np.concatenate(alone), whole)


@pytest.mark.parametrize("name", ALL)
def test_arrays_and_tensors_agree_and_come_back_as_they_were(name: str, cifar: Images) -> None:
    images = cifar[:6]
    kept = images.copy()
    done = corrupt(images, name, 3, seed=0, index=range(6))
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2)
    assert np.array_equal(images, kept)
    for batch in (tensor, tensor.contiguous()):
        back = corrupt(batch, name, 3, seed=0, index=torch.arange(6))
        assert back.dtype == torch.uint8
        assert back.device == batch.device
        assert np.array_equal(back.permute(0, 2, 3, 1).numpy(), done)
    assert np.array_equal(images, kept)


@pytest.mark.parametrize("name", ALL)
@given(
    count=st.integers(0, 3),
    height=st.integers(0, 40),
    width=st.integers(0, 40),
    severity=st.integers(1, 5),
    constants=st.sampled_from(["auto", "cifar", "imagenet"]),
)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_takes_any_shape_from_its_minimum(
    name: str, count: int, height: int, width: int, severity: int, constants: str
) -> None:
    smallest = get_corruption(name).min_side
    shape = (count, smallest + height, smallest + width, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    done = corrupt(images, name, severity, seed=0, index=range(count), constants=constants)
    assert done.shape == shape
    assert done.dtype == np.uint8


def test_auto_constants_depend_on_the_longer_side(cifar: Images) -> None:
    small, big = np.zeros((1, 64, 64, 3), np.uint8) + 9, np.zeros((1, 20, 65, 3), np.uint8) + 9
    for images, chosen in ((small, "cifar"), (big, "imagenet")):
        auto = corrupt(images, "brightness", 1, seed=0, index=[0])
        assert np.array_equal(auto, corrupt(images, "brightness", 1, seed=0, index=[0], constants=chosen))


def test_names_are_in_the_published_order() -> None:
    assert len(names("standard")) == 15
    assert names("extra") == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert names("all") == names("standard") + names("extra")
    assert names("standard")[0] == "gaussian_noise"
    for name in ALL:
        corruption = get_corruption(name)
        assert len(corruption.cifar) == len(corruption.imagenet) == 5
    with pytest.raises(ShiftError, match="standard, extra, all or own"):
        names("every")  # type: ignore[arg-type]


GOOD = np.zeros((2, 32, 32, 3), np.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": GOOD / 255}, "dtype float64.*uint8"),
        ({"images": torch.zeros(2, 3, 32, 32)}, "dtype torch.float32.*uint8"),
        ({"images": GOOD[..., :1], "name": "saturate"}, "grey images, which have no saturation"),
        ({"images": GOOD[..., :2], "name": "frost"}, "frost is defined for images with 1 or 3 channels, .* have 2"),
        ({"images": torch.zeros(2, 32, 32, 3, dtype=torch.uint8)}, "32 channels in NCHW.*permute"),
        ({"images": GOOD[0]}, "four dimensions, NHWC"),
        ({"images": [[1]]}, "a list, but it must be a numpy array or a torch tensor"),
        ({"severity": 0}, "severity is 0, but it must be an integer from 1 to 5"),
        ({"severity": 6}, "severity is 6"),
        ({"severity": True}, "severity is True"),
        ({"name": "gausian_noise"}, "did you mean 'gaussian_noise'"),
        ({"name": "Zoom-Blur"}, "did you mean 'zoom_blur'"),
        ({"name": "qqq"}, "choose one of gaussian_noise, "),
        ({"name": "elastic_transform", "images": GOOD[:, :8, :8]}, "8×8 pixels, but elastic_transform needs"),
        ({"index": [0]}, "one entry for each of 2 images"),
        ({"index": [0.5, 1.5]}, "integers"),
        ({"constants": "mnist"}, "auto, cifar or imagenet"),
    ],
)
def test_wrong_input_gives_a_one_sentence_error(change: dict[str, object], message: str) -> None:
    call = {"images": GOOD, "name": "fog", "severity": 1, "seed": 0, "index": [0, 1], **change}
    with pytest.raises(ShiftError, match=message) as caught:
        corrupt(call.pop("images"), call.pop("name"), call.pop("severity"), **call)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.gpu
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", ALL)
def test_a_gpu_agrees(name: str, constants: str, cifar: Images) -> None:
    tensor = torch.from_numpy(cifar[:200]).permute(0, 3, 1, 2).contiguous()
    for severity in range(1, 6):
        on_cpu = corrupt(tensor, name, severity, seed=0, index=range(200), constants=constants)
        on_gpu = corrupt(tensor.cuda(), name, severity, seed=0, index=range(200), constants=constants)
        assert on_gpu.is_cuda
        difference = (on_cpu.int() - on_gpu.cpu().int()).abs()
        assert (difference <= 1).float().mean() >= 0.999
