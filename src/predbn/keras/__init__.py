"""Prediction-time batch norm for Keras 3 models, whichever of torch, JAX and TensorFlow is behind them.

`adapt(model)` makes every BatchNormalization layer use the statistics of the batch being predicted, and `restore` gives
back the same model. Needs Keras: ``pip install predbn[keras]``, and a backend that KERAS_BACKEND names.
"""

from .adapt import adapt, restore

__all__ = ["adapt", "restore"]
