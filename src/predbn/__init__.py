"""predbn: prediction-time batch normalisation for any PyTorch model.

``predbn.adapt(model)`` makes every batch norm layer use the statistics of the batch being predicted;
``predbn.restore(model)`` gives back the model it was.
"""

from importlib.metadata import PackageNotFoundError, version

from .norm import *  # noqa: F403
from .norm import __all__ as __all__

try:
    __version__ = version("predbn")
except PackageNotFoundError:
    __version__ = "unknown"
