"""`pip install predbn` brings torch and numpy: the method works with them, and every other part says what it needs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from predbn.common import MissingPackageError, PredbnError, needs_extra
from tests.core_only import COMMANDS, CORE, OTHERS, PROJECT, core_dependencies, tomllib
from tests.test_structure import FOLDERS, PACKAGE

ROOT = Path(__file__).resolve().parents[1]


def run(what: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:predbn", "-m", "tests.core_only", what],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), "HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_depends_on_torch_and_numpy():
    assert {"torch", "numpy", "predbn"} <= core_dependencies()
    assert not {"scipy", "safetensors", "pandas", "typer"} & core_dependencies()
    assert {*CORE, *OTHERS, "commands"} == set(FOLDERS)


def test_the_method_works_with_all_other_packages_blocked(tmp_path):
    run("method", tmp_path)


def test_every_other_part_says_what_to_install(tmp_path):
    said = run("missing", tmp_path).splitlines()
    for folder in OTHERS:
        extra = {"serving": "serve", "onnx": "onnx"}.get(folder, "eval")
        (line,) = [line for line in said if line.startswith(f"{folder}: ")]
        sentence = rf'{folder}: MissingPackageError: \w+ is not installed: run `pip install "predbn\[{extra}\]"`\.'
        assert re.fullmatch(sentence, line)
    assert 'store: MissingPackageError: safetensors is not installed: run `pip install "predbn[files]"`.' in said
    by_command = said[-2 * len(COMMANDS) :]
    assert by_command == ['error: typer is not installed: run `pip install "predbn[eval]"`.', "exit code 1"] * len(
        COMMANDS
    )


def test_a_missing_package_is_an_import_error_and_one_of_ours():
    with (
        pytest.raises(
            MissingPackageError, match=r'^absent is not installed: run `pip install "predbn\[x\]"`\.$'
        ) as caught,
        needs_extra("x"),
    ):
        import absent.part  # noqa: F401
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, PredbnError)
    assert caught.value.name == "absent"


def test_what_uses_a_package_and_what_can_be_done_without_it_are_in_the_sentence():
    sentence = r'^lite:a needs absent: run `pip install "predbn\[x\]"`, or wait\.$'
    with pytest.raises(MissingPackageError, match=sentence), needs_extra("x", what="lite:a", otherwise="wait"):
        import absent  # noqa: F401


def test_a_mistake_in_our_own_imports_is_not_hidden():
    with pytest.raises(ModuleNotFoundError, match=r"predbn\.absent") as caught, needs_extra("x"):
        import predbn.absent  # noqa: F401
    assert not isinstance(caught.value, MissingPackageError)


def test_every_extra_that_is_named_in_a_sentence_exists():
    extras = set(tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"])
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    named = {extra for text in texts for extra in re.findall(r'needs_extra\("([\w-]+)"', text)}
    assert {"eval", "files", "serve", "ray", "timm"} <= named
    assert named <= extras
