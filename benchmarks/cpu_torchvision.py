"""Let `import torchvision`, and so `import timm`, work beside a CPU build of torch: see `torchvision_operators.py`.

`make test` puts this file into its environment, with a .pth file that imports it when Python starts, so that timm can
be imported there as anywhere else. Only the standard library is imported until somebody imports torchvision.
"""

from __future__ import annotations

import sys


class _BeforeTorchvision:
    """An import hook that finds nothing."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "torchvision" and _BeforeTorchvision in sys.meta_path:
            sys.meta_path.remove(_BeforeTorchvision)  # type: ignore[arg-type]
            from predbn.models import declare_torchvision_operators

            declare_torchvision_operators()


sys.meta_path.insert(0, _BeforeTorchvision)  # type: ignore[arg-type]
