"""A model for servers in processes of their own: `tests.serving.served_model:build`."""

from __future__ import annotations

from predbn.models import Classifier

from .running import classifier


def build() -> Classifier:
    return classifier()
