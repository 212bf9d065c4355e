"""Example pictures of a run, embedded in its page as data URLs."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import pandas as pd

from .frames import display_name, sort_corruptions


@dataclass(frozen=True)
class ExamplePicture:
    """A picture with the name of its corruption; `address` is its content as a data URL."""

    name: str
    address: str


def example_pictures(examples: pd.DataFrame | None) -> list[ExamplePicture]:
    """The pictures of a table with the columns corruption, severity and png, clean ones first, then by family."""
    if examples is None or examples.empty:
        return []
    order = sort_corruptions(list(examples["corruption"]))
    rows = sorted(examples.to_dict("records"), key=lambda row: (order.index(row["corruption"]), row["severity"]))
    return [_picture(row["corruption"], row["png"]) for row in rows]


def pictures_of(examples: pd.DataFrame, split: str) -> list[ExamplePicture]:
    """All pictures of one split, in their order."""
    if examples.empty:
        return []
    return [_picture(split, png) for png in examples.loc[examples["corruption"] == split, "png"]]


def _picture(split: str, png: bytes) -> ExamplePicture:
    return ExamplePicture(display_name(split), f"data:image/png;base64,{base64.b64encode(png).decode()}")
