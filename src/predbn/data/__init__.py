"""Data sets. Each reads its published layout, checks it, and yields batches: uint8 images, or int32 rows of Criteo.

`open_images` and `open_shifted` open them by reference, as on the command line; `Corrupted` and `Randomised` shift
clean data on the fly; `write_cifar10c` and `write_imagenetc` write corrupted data sets. Pillow decodes pictures,
pyarrow parses Criteo's text, filelock (through `predbn.common`) lets one process decode while others wait.
"""

from predbn.common import DataError, needs_extra

with needs_extra("eval"):
    import PIL as _pil  # noqa: F401

from .batch import Device, ImageBatch, Order, choose_positions, rows_to_device
from .cifar10 import SAMPLE_FOLDER, cifar10, sample
from .cifar10_cache import DownloadError, cifar10_cache_file, fetch_cifar10, read_cifar10_cache
from .cifar10_files import CLASSES as CIFAR10_CLASSES
from .cifar10c import Cifar10C
from .class_map import number_classes, read_class_map
from .criteo import PERCENTAGES, Randomised, RowBatch, Rows, criteo, criteo_folder, prepare_synthetic
from .criteo import prepare as prepare_criteo
from .criteo.columns import CATEGORIES as CRITEO_CATEGORIES
from .criteo.columns import MISSING_NUMBER
from .criteo.columns import NUMBERS as CRITEO_NUMBERS
from .criteo.columns import WIDTH as CRITEO_WIDTH
from .criteo.files import Prepared as PreparedCriteo
from .criteo.files import read_prepared as read_prepared_criteo
from .criteo.rows import split_at as split_criteo_at
from .folder import decoded_files, from_folder
from .imagenet import imagenet
from .imagenet_classes import ClassMask, class_mask, wnids
from .imagenetc import ImageNetC
from .images import Images, sha256_of
from .loader import example_of, is_loader
from .npy import load_array
from .own_shift import PictureFiles, ReferenceAndData, open_in_order, open_reference_and_data, open_unlabelled
from .picture_content import PICTURE_ERRORS, as_pixels, open_picture
from .pictures import Listing, Pixels, ResizeCrop, class_folders, list_pictures, read_picture, resize_crop
from .references import (
    IMAGENET_SETS,
    imagenet_folder,
    is_shifted,
    is_tabular,
    open_images,
    open_randomised,
    open_rows,
    open_shifted,
)
from .shifted import CLEAN, SEVERITIES, Corrupted, ShiftedDataset
from .write_corrupted import write_cifar10c, write_imagenetc

__all__ = [
    "CIFAR10_CLASSES",
    "CLEAN",
    "CRITEO_CATEGORIES",
    "CRITEO_NUMBERS",
    "CRITEO_WIDTH",
    "IMAGENET_SETS",
    "MISSING_NUMBER",
    "PERCENTAGES",
    "PICTURE_ERRORS",
    "SAMPLE_FOLDER",
    "SEVERITIES",
    "Cifar10C",
    "ClassMask",
    "Corrupted",
    "DataError",
    "Device",
    "DownloadError",
    "ImageBatch",
    "ImageNetC",
    "Images",
    "Listing",
    "Order",
    "PictureFiles",
    "Pixels",
    "PreparedCriteo",
    "Randomised",
    "ReferenceAndData",
    "ResizeCrop",
    "RowBatch",
    "Rows",
    "ShiftedDataset",
    "as_pixels",
    "choose_positions",
    "cifar10",
    "cifar10_cache_file",
    "class_folders",
    "class_mask",
    "criteo",
    "criteo_folder",
    "decoded_files",
    "example_of",
    "fetch_cifar10",
    "from_folder",
    "imagenet",
    "imagenet_folder",
    "is_loader",
    "is_shifted",
    "is_tabular",
    "list_pictures",
    "load_array",
    "number_classes",
    "open_images",
    "open_in_order",
    "open_picture",
    "open_randomised",
    "open_reference_and_data",
    "open_rows",
    "open_shifted",
    "open_unlabelled",
    "prepare_criteo",
    "prepare_synthetic",
    "read_cifar10_cache",
    "read_class_map",
    "read_picture",
    "read_prepared_criteo",
    "resize_crop",
    "rows_to_device",
    "sample",
    "sha256_of",
    "split_criteo_at",
    "wnids",
    "write_cifar10c",
    "write_imagenetc",
]
