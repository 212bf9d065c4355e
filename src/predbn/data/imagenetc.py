"""ImageNet-C as published: a folder of pictures for each corruption and severity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from predbn.common import DataError

from .batch import Device, ImageBatch, Order, batch_positions
from .pictures import Listing, ResizeCrop, class_folders, list_pictures, read_batches
from .shifted import SEVERITIES, check_split

PUBLISHED_CROP = ResizeCrop((224, 224), resize=256)
"""How the authors of ImageNet-C resized and cropped the clean pictures before they corrupted them."""


class ImageNetC:
    """A folder `<corruption>/<severity>/<class>/<picture>`.

    `names` lists the corruptions and `classes` the class folders in sorted order, which is the order of the labels.
    Every split has the same pictures; their position in the order by class and name is the index. `clean`, a folder
    `<class>/<picture>` of the originals, is the split "clean" with severity 0, resized and cropped as the published
    pictures were before they were corrupted: to 256 and then 224 × 224 pixels.

    With a `transform`, all pictures are resized and cropped; those that already have its size are not changed.
    """

    def __init__(
        self, root: str | Path, *, clean: str | Path | None = None, transform: ResizeCrop | None = None
    ) -> None:
        self.root, self.clean = Path(root), None if clean is None else Path(clean)
        self._transform = transform
        if not self.root.is_dir():
            raise DataError(f"{self.root} is not a directory with the corruptions of ImageNet-C.")
        self.name = self.root.name
        self.names = sorted(p.name for p in self.root.iterdir() if (p / "1").is_dir())
        if not self.names:
            raise DataError(
                f"{self.root} has no <corruption>/<severity> folders: give the folder that contains the corruptions."
            )
        self._first = self.root / self.names[0] / "1"
        listing = list_pictures(self._first)
        self.classes, self.labels = listing.classes, listing.labels
        self._stems = _stems(listing)
        self.index = torch.arange(len(self.labels))
        self._check_classes()

    def __len__(self) -> int:
        return len(self._stems)

    def _check_classes(self) -> None:
        """Check that every split has the classes of the first, which is quick because no picture is opened."""
        folders = [self.root / name / str(severity) for name in self.names for severity in SEVERITIES]
        for folder in folders if self.clean is None else [self.clean, *folders]:
            self._check_folder(folder)

    def _check_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DataError(f"{folder} is missing; {self.root} has {', '.join(self.names)}, each at severities 1 to 5.")
        odd = sorted(set(class_folders(folder)) ^ set(self.classes))
        if odd:
            has = "does not have" if odd[0] in self.classes else "has"
            raise DataError(
                f"{folder} {has} the class {odd[0]}, unlike {self._first} ({len(odd)} classes are only in one of "
                "them): some pictures are missing."
            )

    def split(self, name: str, severity: int) -> Listing:
        """The pictures of one corruption at one severity, sorted by class and name."""
        if check_split(name, severity):
            if self.clean is None:
                raise DataError(f"{self.root} has no clean pictures: give their folder as ImageNetC(root, clean=…).")
            folder = self.clean
        else:
            folder = self.root / name / str(severity)
        self._check_folder(folder)
        listing = list_pictures(folder)
        stems = _stems(listing)
        if stems != self._stems:
            odd = min(set(stems) ^ set(self._stems), default=stems[0])
            raise DataError(
                f"{folder} ({len(stems)} pictures) and {self._first} ({len(self)}) do not have the same pictures: "
                f"{odd} is only in one of them."
            )
        return listing

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[ImageBatch]:
        """Batches of at most `size` pictures of one split, in an order of positions or from first to last.

        The next batch is decoded on all cores while the model works on the last one.
        """
        transform = PUBLISHED_CROP if severity == 0 and self._transform is None else self._transform
        listing, positions = self.split(name, severity), batch_positions(order, len(self), size)
        return read_batches(listing.path, positions, transform, self.labels, device)


def _stems(listing: Listing) -> list[str]:
    """The names without suffix, which all splits share: the published ones end in .JPEG, the originals may not."""
    return [name.rpartition(".")[0] for name in listing.names]
