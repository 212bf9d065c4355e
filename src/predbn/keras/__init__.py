"""Prediction-time batch norm for Keras 3 models on the torch, JAX and TensorFlow backends.

`adapt(model)` makes BatchNormalization layers use the statistics of the batch being predicted, and `restore` undoes it.
Needs Keras: ``pip install predbn[keras]``, and the backend that KERAS_BACKEND names.
"""

from .adapt import adapt, restore

__all__ = ["adapt", "restore"]
