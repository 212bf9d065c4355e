"""The model and the unlabelled data that a command is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .options import parse_device_option, parse_preprocessing, usage_error

if TYPE_CHECKING:
    from predbn.diagnostics import ImageSubset
    from predbn.models import Classifier


def load_model(
    model: str, weights: Path | None, mean: str | None, std: str | None, size: str | None, device: str
) -> Classifier:
    """The model that --model, --weights, --mean, --std, --size and --device describe."""
    from predbn.models import load

    preprocessing, torch_device = parse_preprocessing(mean, std, size), parse_device_option(device)
    return load(model, weights=weights, preprocessing=preprocessing, device=torch_device)


def page_settings(classifier: Classifier, /, **options: object) -> dict[str, object]:
    """What a page says about how it was made: the options, the device, the version and the preprocessing."""
    from predbn import __version__
    from predbn.norm import device_of

    if options.get("corruption") is None:
        options = {**options, "severity": None}
    preprocessing = classifier.info.preprocessing.describe()
    return {**options, "device": str(device_of(classifier)), "predbn": __version__, "preprocessing": preprocessing}


def check_shift(corruption: str | None) -> None:
    """Refuse a corruption that does not exist, before a model is loaded."""
    from predbn.shifts import find_corruption

    if corruption is not None:
        with usage_error("--shift"):
            find_corruption(corruption)


def open_reference(
    reference: str, model: Classifier, images: int, *, seed: int = 0, option: str = "--reference"
) -> ImageSubset:
    """At most `images` images that the model knows, without labels; `option` names them."""
    from predbn.diagnostics import open_diagnosis_data

    with usage_error(option):
        return open_diagnosis_data(reference, "reference", model.info.preprocessing, most=images, seed=seed)


def open_data(
    data: str, model: Classifier, images: int, corruption: str | None, severity: int, seed: int
) -> ImageSubset:
    """At most `images` images to predict, corrupted if a corruption is given."""
    from predbn.diagnostics import open_diagnosis_data

    with usage_error("--data"):
        return open_diagnosis_data(
            data, "data", model.info.preprocessing, most=images, corruption=corruption, severity=severity, seed=seed
        )
