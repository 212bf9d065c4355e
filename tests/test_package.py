"""The files of a release: what they need, what they hold, and what a package index shows."""

import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.core_only import tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
index_readme = runpy.run_path(str(ROOT / "setup.py"))["index_readme"]


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    """What `make dist` makes, in a folder."""
    for package in ("build", "twine", "check_wheel_contents"):
        pytest.importorskip(package, reason="the extra `release` is not installed")
    folder = tmp_path_factory.mktemp("release")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, folder)
    done = subprocess.run([sys.executable, "-m", "build", "--no-isolation"], cwd=folder, capture_output=True, text=True)
    if "Missing dependencies" in done.stdout + done.stderr:
        pytest.skip("setuptools is too old to build without a network")
    assert done.returncode == 0, done.stderr
    return folder / "dist"


def test_the_files_pass_the_checks_of_an_index(release):
    files = sorted(release.iterdir())
    assert [re.sub(r".*predbn-[\d.]+\d", "", file.name) for file in files] == ["-py3-none-any.whl", ".tar.gz"]
    checks = [["twine", "check", "--strict", *map(str, files)], ["check_wheel_contents", str(files[0])]]
    for check in checks:
        done = subprocess.run([sys.executable, "-m", *check], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_needs_torch_and_numpy_and_has_its_data(release):
    (wheel,) = release.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        card = Parser().parsestr(archive.read(metadata).decode())
    needed = [line for line in card.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(re.match(r"\w+", line)[0] for line in needed) == ["numpy", "torch"]
    assert card["Version"] == PROJECT["version"]
    for data in ("predbn/py.typed", "predbn/serving/page.html", "predbn/data/imagenet_wnids.txt"):
        assert data in names
    assert any(name.startswith("predbn/models/zoo_weights/") for name in names)
    assert not re.search(r'\]\((?!https?:)|src="(?!https?:)', card.get_payload())


def test_without_an_address_pictures_are_left_out_and_links_are_text():
    text = '[a](docs/a.md#b) [w](https://x.org) ![p](p.svg) <img src="q.png" width="6"> [top](#top)'
    assert index_readme(text, page="", picture="") == "a [w](https://x.org)   top"


def test_with_an_address_links_and_pictures_are_absolute():
    text = '[a](docs/a.md#b) ![p](p.svg) <img src="q.png" width="6"> ![r](https://x.org/r.png)'
    shown = index_readme(text, page="https://h/blob/v1/{path}", picture="https://h/raw/v1/{path}")
    assert shown == (
        "[a](https://h/blob/v1/docs/a.md#b) ![p](https://h/raw/v1/p.svg) "
        '<img src="https://h/raw/v1/q.png" width="6"> ![r](https://x.org/r.png)'
    )


def test_the_version_is_written_once():
    version = re.escape(PROJECT["version"])
    files = [ROOT / name for name in ("pyproject.toml", "setup.py", "CITATION.cff", "docs/conf.py")]
    files += (ROOT / "src").rglob("*.py")
    pattern = re.compile(rf"""version\W+["']?{version}\b""")
    assert [file.name for file in files if pattern.search(file.read_text())] == ["pyproject.toml"]


def test_all_has_every_extra_that_adds_something_to_use():
    extras = PROJECT["optional-dependencies"]
    named = set(re.findall(r"[\w-]+", extras["all"][0])) - {"predbn"}
    assert named == set(extras) - {"all", "bench", "dev", "docs", "files", "release"}
