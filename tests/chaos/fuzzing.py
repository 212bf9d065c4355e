"""What the tests that read hostile files share: the budget, damaged contents, and what a reader may do with them."""

from __future__ import annotations

import os
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from predbn.common import PredbnError

BUDGET = settings(
    max_examples=int(os.environ.get("PREDBN_FUZZ", "100")),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""The same examples in every run; PREDBN_FUZZ=10000 in the environment looks longer."""


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with up to four places changed: bytes replaced, cut out or put in."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(changed)))
        length = draw(st.sampled_from([0, 1, 1, 4, 1000]))
        changed[place : place + length] = draw(st.binary(max_size=4))
    return bytes(changed)


def must_read_or_refuse(read: Callable[[], object], name: str) -> None:
    """Call a reader. Only an error of the package may come out of it, and it has to name the file."""
    refused = None
    try:
        read()
    except PredbnError as error:
        refused = str(error)
    assert refused is None or name in refused
