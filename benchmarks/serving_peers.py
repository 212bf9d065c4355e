"""Other servers for the same network, for `benchmarks/serving.py`: LitServe, and Ray Serve with a batch per stream.

Both get the pixels of a request as base64 in JSON, and answer with logits in JSON: the way that their documentation
shows.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import litserve as ls
import numpy as np
import torch
from torch import nn

import predbn

MAX_REQUESTS = 16
"""A batch of 64 rows."""
MAX_WAIT = 0.002


def _pixels(request: dict[str, Any]) -> torch.Tensor:
    content = np.frombuffer(base64.b64decode(request["data"]), np.uint8)
    return torch.from_numpy(content.reshape(-1, 3, 32, 32).copy())


class LitApi(ls.LitAPI):
    """Batches by size and time, of whoever has sent something."""

    def __init__(self, build: Callable[[], nn.Module], **options: Any) -> None:
        super().__init__(**options)
        self.build = build

    def setup(self, device: str) -> None:
        torch.set_num_threads(1)
        self.model = self.build()

    def decode_request(self, request) -> torch.Tensor:  # without a type, LitServe parses JSON
        return _pixels(request)

    def batch(self, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, list[int]]:
        return torch.cat(inputs), [len(x) for x in inputs]

    def predict(self, inputs: tuple[torch.Tensor, list[int]]) -> list[torch.Tensor]:
        x, sizes = inputs
        with torch.inference_mode():
            return list(self.model(x.contiguous(memory_format=torch.channels_last)).split(sizes))

    def unbatch(self, output: list[torch.Tensor]) -> list[torch.Tensor]:
        return output

    def encode_response(self, output: torch.Tensor) -> dict[str, Any]:
        return {"logits": output.tolist()}


def litserve(build: Callable[[], nn.Module], port: int) -> None:
    """LitServe with the plain network."""
    api = LitApi(build, max_batch_size=MAX_REQUESTS, batch_timeout=MAX_WAIT)
    ls.LitServer(api, accelerator="cpu", fast_queue=True).run(port=port, generate_client_file=False, log_level="error")


def ray_serve(build: Callable[[], nn.Module], port: int) -> None:
    """Ray Serve's own batching, one batch per stream: the network is adapted with `batch`."""
    import ray
    from ray import serve
    from starlette.requests import Request

    @serve.deployment(num_replicas=1, max_ongoing_requests=200, ray_actor_options={"num_cpus": 1})
    class Server:
        def __init__(self) -> None:
            torch.set_num_threads(1)
            self.model = predbn.adapt(build(), "batch")

        @serve.multiplexed(max_num_models_per_replica=1000)
        async def stream(self, name: str) -> str:
            return name

        @serve.batch(max_batch_size=MAX_REQUESTS, batch_wait_timeout_s=MAX_WAIT)
        async def predict(self, requests: list[torch.Tensor]) -> list[list[list[float]]]:
            with torch.inference_mode():
                logits = self.model(torch.cat(requests).contiguous(memory_format=torch.channels_last))
            return [part.tolist() for part in logits.split([len(x) for x in requests])]

        async def __call__(self, request: Request) -> dict[str, Any]:
            await self.stream(serve.get_multiplexed_model_id())
            return {"logits": await self.predict(_pixels(await request.json()))}

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    serve.start(http_options={"port": port})
    serve.run(Server.bind(), route_prefix="/", blocking=True)
