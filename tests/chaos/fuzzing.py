"""What the tests that read hostile files share: the budget, damaged contents, and what a reader may do with them."""

import os
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from predbn.common import PredbnError

T = TypeVar("T")
BUDGET = settings(
    max_examples=int(os.environ.get("PREDBN_FUZZ", "50")),
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


def must_read_or_refuse(read: Callable[[], T], name: str, is_valid: Callable[[T], object]) -> None:
    """Call a reader: what it returns is valid, and an error is one of the package, on one line, with the name."""
    try:
        value = read()
    except PredbnError as error:
        refusal = str(error)
    else:
        assert is_valid(value), f"{name} was read as {value!r}"
        return
    assert name in refusal
    assert "\n" not in refusal
