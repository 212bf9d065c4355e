from __future__ import annotations

from pathlib import Path

import pytest

from predbn.data.cache import cache_folder


@pytest.mark.parametrize(
    ("platform", "environment", "wanted"),
    [
        ("linux", {"PREDBN_CACHE": "/there", "XDG_CACHE_HOME": "/xdg"}, "/there"),
        ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/predbn"),
        ("linux", {}, "/home/me/.cache/predbn"),
        ("darwin", {"XDG_CACHE_HOME": "/xdg"}, "/home/me/Library/Caches/predbn"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/predbn"),
        ("win32", {}, "/home/me/AppData/Local/predbn"),
    ],
)
def test_the_platform_decides_unless_the_user_does(platform, environment, wanted, monkeypatch):
    for name in ("PREDBN_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    assert cache_folder() == Path(wanted)
