"""What the six files of CIFAR-10 decode to, whatever they were read from."""

from __future__ import annotations

import torch

from predbn.common import DataError

from .cifar10_layouts import Arrays
from .images import sha256_of

__all__ = ["CLASSES", "FILES", "RECORDED", "TEST", "TRAIN", "check"]

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
TEST = ("test_batch",)
FILES = TRAIN + TEST

RECORDED: dict[str, dict[str, str]] = {
    "data_batch_1": {
        "images": "a50e8b48728e1667d682a807155c375279d5ae321fb12242c02e3104a6bc8b21",
        "labels": "66145c918fed3a0358c4001da734fbc15cb584ddf34c823fa524e6b9c81542b7",
    },
    "data_batch_2": {
        "images": "0b825e5592c3b72ea18d6ec2ff5f5b19d33e41a75f5039054a9bb87be3cf69a0",
        "labels": "1074c604720c88e1f4d8408e1995944e9bc65877af3e8c5503da69209d57286b",
    },
    "data_batch_3": {
        "images": "c6ee1dd4601a69ec085d8ebf53ee6441775491a6839a0a9ae8fa198e88a3a429",
        "labels": "fe1021a9820682f7eb5cc7f65ff3d015d8a33876df6dd7787404f0fa8cf5937f",
    },
    "data_batch_4": {
        "images": "1f6b6c799cff375a9f8fae2fac909d51ee09f38a6a60eebb9e8fec6f47ddc48f",
        "labels": "1599745ad42ec41be72e2f3f716b65bac89321693690656a125b1ea3ca3feeea",
    },
    "data_batch_5": {
        "images": "58e3bbf713e28357476a351d3a05d056372f94c681d04ca9d62a076fdf2a643b",
        "labels": "a3a7f0cf6cafd5b2d4610fd467bd87987a0a9ff93958b860a567c925a00ad56d",
    },
    "test_batch": {
        "images": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        "labels": "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
    },
}
"""SHA-256 of the images, uint8 [10000, 3, 32, 32], and of the labels, int64 [10000], little-endian, of each file."""


def check(name: str, place: str, arrays: Arrays) -> None:
    """Refuse arrays that are not those of the official file of that name."""
    for what, array in arrays._asdict().items():
        found, wanted = sha256_of(torch.from_numpy(array)), RECORDED[name][what]
        if found != wanted:
            sums = f"SHA-256 {found[:12]}…, not {wanted[:12]}…"
            raise DataError(f"{place} is damaged: its {what} are not those of CIFAR-10 ({sums}): get it again.")
