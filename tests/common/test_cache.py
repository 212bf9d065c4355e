from __future__ import annotations

from pathlib import Path

import pytest

from predbn.common import cache_folder


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"PREDBN_CACHE": "/there", "XDG_CACHE_HOME": "/xdg"}, "/there"),
        ({"PREDBN_CACHE": "~/there"}, "/home/me/there"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/predbn"),
        ({}, "/home/me/.cache/predbn"),
    ],
)
def test_the_platform_decides_unless_the_user_does(environment, wanted, monkeypatch):
    for name in ("PREDBN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **environment}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(wanted)
