"""Data sets: each reads its published layout, checks it, and yields uint8 batches.

Pillow decodes the pictures of folders and the lossless mosaics in which CIFAR-10 is kept; filelock, which torch needs
too, lets one process decode a folder while others wait for it.
"""

from predbn.common import DataError

from .batch import Batch, Device, Order, pick, steps_of
from .batch import send as send_to_device
from .cifar10 import cifar10
from .cifar10_cache import cache_file, read_cache
from .cifar10_fetch import NotReached, fetch
from .cifar10_sums import FILES, RECORDED
from .cifar10c import Cifar10C
from .class_mask import ClassMask, class_mask
from .criteo import PERCENTAGES, Randomised, RowBatch, Rows, criteo, prepare_synthetic
from .criteo.columns import CATEGORIES as CRITEO_CATEGORIES
from .criteo.columns import MISSING_NUMBER
from .criteo.columns import NUMBERS as CRITEO_NUMBERS
from .criteo.columns import WIDTH as CRITEO_WIDTH
from .criteo.prepare import prepare
from .criteo.shards import TOTALS, Shards
from .criteo.split import Part as CriteoPart
from .criteo.split import criteo_folder, split_at
from .decoded import Report as DecodingProgress
from .decoded import decoded_files
from .embedded import SAMPLE_FOLDER, sample
from .folder import from_folder
from .framing import UNREADABLE, Interpolation, Pixels, read_picture
from .framing import frame as frame_picture
from .imagenet import ImageNetSet, imagenet, list_imagenet
from .imagenetc import ImageNetC
from .images import Images, sha256_of
from .listing import Listing, class_folders, list_pictures
from .npy import from_npy, load_array
from .preview import write_preview
from .shifted import CLEAN, SEVERITIES, Corrupted, Shifted
from .wnids import wnids
from .write_corrupted import write_cifar10c, write_imagenetc

__all__ = [
    "CLEAN",
    "CRITEO_CATEGORIES",
    "CRITEO_NUMBERS",
    "CRITEO_WIDTH",
    "FILES",
    "MISSING_NUMBER",
    "PERCENTAGES",
    "RECORDED",
    "SAMPLE_FOLDER",
    "SEVERITIES",
    "TOTALS",
    "UNREADABLE",
    "Batch",
    "Cifar10C",
    "ClassMask",
    "Corrupted",
    "CriteoPart",
    "DataError",
    "DecodingProgress",
    "Device",
    "ImageNetC",
    "ImageNetSet",
    "Images",
    "Interpolation",
    "Listing",
    "NotReached",
    "Order",
    "Pixels",
    "Randomised",
    "RowBatch",
    "Rows",
    "Shards",
    "Shifted",
    "cache_file",
    "cifar10",
    "class_folders",
    "class_mask",
    "criteo",
    "criteo_folder",
    "decoded_files",
    "fetch",
    "frame_picture",
    "from_folder",
    "from_npy",
    "imagenet",
    "list_imagenet",
    "list_pictures",
    "load_array",
    "pick",
    "prepare",
    "prepare_synthetic",
    "read_cache",
    "read_picture",
    "sample",
    "send_to_device",
    "sha256_of",
    "split_at",
    "steps_of",
    "wnids",
    "write_cifar10c",
    "write_imagenetc",
    "write_preview",
]
