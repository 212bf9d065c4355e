"""What happens to the data: the 19 corruptions, mixtures of them, stream orders, tabular shift.

scipy, OpenCV and Pillow do what they do exactly and fast (filters' reference behaviour, Canny, JPEG);
everything else is batched in torch and runs on either device.
"""

from predbn.common import ShiftError

from . import blur, digital, elastic, noise, orders, weather  # noqa: F401
from .corrupt import corrupt
from .corrupt import find as find_corruption
from .mixture import mix
from .registry import get as get_corruption
from .registry import names
from .tabular import randomise_features, randomise_tokens

__all__ = [
    "ShiftError",
    "corrupt",
    "find_corruption",
    "get_corruption",
    "mix",
    "names",
    "orders",
    "randomise_features",
    "randomise_tokens",
]
