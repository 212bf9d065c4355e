"""A model for servers in processes of their own: `tests.serving.served_model:build`."""

from __future__ import annotations

import time

from predbn.models import Classifier

from .running import classifier


def build() -> Classifier:
    return classifier()


def build_slow() -> Classifier:
    """A model that takes a tenth of a second."""
    model = classifier()
    model.register_forward_pre_hook(lambda *_: time.sleep(0.1))
    return model
