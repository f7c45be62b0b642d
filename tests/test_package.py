"""The distribution: what a wheel holds, and what importing its parts brings along."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def python(*arguments: str, cwd: Path | None = None, path: Path | None = None) -> str:
    """What Python prints, without this checkout's own installation if `path` is given."""
    isolated = ["-S", "-E"] if path else []
    done = subprocess.run(
        [sys.executable, *isolated, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("runtime", "streams", "models"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    python("-m", "pip", "wheel", *options, "--wheel-dir", str(target), ".", cwd=source)
    (built,) = target.glob("*.whl")
    return built


def test_a_wheel_holds_one_package_and_everything_it_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"omni_speak", "omni_speak-0.1.0.dist-info"}
    for folder in ("runtime", "streams", "models"):
        for file in (ROOT / folder).rglob("*"):
            data = file.is_file() and {"weights", "data", "web"} & set(file.parts)
            if file.suffix == ".py" or data:
                assert f"omni_speak/{file.relative_to(ROOT)}" in names


def test_an_installed_wheel_imports_without_this_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    found = python(
        "-c",
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.append({libraries!r})\n"
        "import omni_speak.streams.cli, omni_speak.streams.client, omni_speak.runtime.request\n"
        "print(omni_speak.streams.client.__file__)",
        cwd=tmp_path,
        path=tmp_path,
    )
    assert found.startswith(str(tmp_path))


@pytest.mark.parametrize("module", ["cli", "client", "server", "say", "daemon"])
def test_nothing_in_streams_loads_an_engine(module: str) -> None:
    loaded = python(
        "-c",
        f"import omni_speak.streams.{module}, sys\n"
        "print([name for name in ('torch', 'vllm', 'transformers') if name in sys.modules])",
    )
    assert loaded == "[]\n"


def test_help_loads_little() -> None:
    loaded = python(
        "-c",
        "import omni_speak.streams.cli, sys\n"
        "print([name for name in ('numpy', 'pydantic', 'starlette', 'rich') "
        "if name in sys.modules])",
    )
    assert loaded == "[]\n"
