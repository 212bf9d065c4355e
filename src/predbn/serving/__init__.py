"""A server for one model and many streams: every request is predicted with the statistics of its own.

`serve(model)` starts it. It speaks the Open Inference Protocol v2, so that Triton's clients can talk to it. Needs
Starlette, uvicorn and prometheus_client: ``pip install "predbn[serve]"``.
"""

from predbn.common import ServingError, needs_extra

with needs_extra("serve"):
    import prometheus_client as _prometheus_client  # noqa: F401
    import starlette as _starlette  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401

from .app import create_app
from .calibration_file import load_calibration, save_calibration
from .errors import RequestError
from .serve import prepare_service, run_server, serve
from .service import Service
from .settings import Settings
from .work import Prediction, Work

__all__ = [
    "Prediction",
    "RequestError",
    "Service",
    "ServingError",
    "Settings",
    "Work",
    "create_app",
    "load_calibration",
    "prepare_service",
    "run_server",
    "save_calibration",
    "serve",
]
