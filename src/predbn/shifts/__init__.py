"""What happens to the data: the 19 corruptions, mixtures of them, stream orders, tabular shift.

scipy, OpenCV and Pillow do what they do exactly and fast (filters' reference behaviour, Canny, JPEG);
everything else is batched in torch and runs on either device.
"""

from predbn.shifts import blur, digital, elastic, noise, orders, weather  # noqa: F401
from predbn.shifts.corrupt import corrupt
from predbn.shifts.errors import ShiftError
from predbn.shifts.mixture import mix
from predbn.shifts.registry import names
from predbn.shifts.tabular import randomise_features, randomise_tokens

__all__ = ["ShiftError", "corrupt", "mix", "names", "orders", "randomise_features", "randomise_tokens"]
