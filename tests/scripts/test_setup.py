"""scripts/setup over a stand-in for Python, which writes down what it is asked to do."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

# Behaves as the interpreter, as `venv` and as `pip`. `$FAIL` in an argument list makes pip fail.
STAND_IN = """#!/usr/bin/env bash
case "$*" in
    -c*) exit 0 ;;
    *--version*) exit 0 ;;
esac
echo "$*" >>"$CALLS"
case "$*" in
    "-m venv"*)
        venv=${*: -1}
        rm -rf "$venv"
        mkdir -p "$venv/bin" "$venv/lib/python3.11/site-packages"
        cp "$0" "$venv/bin/python" ;;
    *pip*)
        if [[ -n ${FAIL-} && "$*" == *"$FAIL"* && "$*" != *--index-url* ]]; then
            echo "ERROR: no luck with $FAIL" >&2
            exit 1
        fi ;;
    "- "*) cat >/dev/null ;;
esac
"""


@dataclass
class Clone:
    root: Path
    environment: dict[str, str]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.root / "scripts" / "setup", *arguments],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    def calls(self) -> list[str]:
        """What Python was asked to do since the last time."""
        log = Path(self.environment["CALLS"])
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    root, programs = tmp_path / "my clone", tmp_path / "bin"
    shutil.copytree(ROOT / "scripts" / "requirements", root / "scripts" / "requirements")
    for name in ("scripts/setup", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    programs.mkdir()
    python = programs / "python3.11"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "CALLS": str(tmp_path / "calls"),
    }
    return Clone(root, environment)


def steps(calls: list[str]) -> list[str]:
    """The calls, named."""
    names = {
        "-m venv": "venv",
        "torch==": "torch",
        "cpu.txt": "cpu list",
        "cuda.txt": "cuda list",
        "dev.txt": "dev list",
        "-e ": "project",
        "- cpu": "check",
        "- cuda": "check",
    }
    return [next(name for part, name in names.items() if part in call) for call in calls]


def test_first_use_installs_then_runs_the_command(clone: Clone) -> None:
    done = clone.run("echo", "spoken")
    assert (done.returncode, done.stdout) == (0, "spoken\n")
    assert "installing" in done.stderr
    calls = clone.calls()
    assert steps(calls) == ["venv", "torch", "cpu list", "check", "project"]
    assert all("--no-deps" in call for call in calls if "pip" in call)


def test_a_second_use_does_and_says_nothing(clone: Clone) -> None:
    clone.run()
    clone.calls()
    done = clone.run("echo", "again")
    assert (done.stdout, done.stderr, clone.calls()) == ("again\n", "", [])


def test_dev_adds_its_list_to_what_is_there(clone: Clone) -> None:
    clone.run()
    clone.calls()
    clone.run("--dev")
    assert steps(clone.calls()) == ["dev list"]
    assert clone.run().stderr == ""
    assert clone.run("--dev").stderr == ""


def test_a_changed_list_is_installed_again(clone: Clone) -> None:
    clone.run()
    clone.calls()
    with (clone.root / "scripts/requirements/cpu.txt").open("a") as file:
        file.write("another==1.0\n")
    clone.run()
    assert steps(clone.calls()) == ["torch", "cpu list", "check"]


def test_changed_entry_points_are_installed_again(clone: Clone) -> None:
    clone.run()
    clone.calls()
    with (clone.root / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    clone.run()
    assert steps(clone.calls()) == ["project"]


def test_an_interrupted_install_goes_on_in_the_same_venv(clone: Clone) -> None:
    failed = clone.run("echo", "spoken", FAIL="cpu.txt")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "run the command again to go on" in failed.stderr
    half = clone.root / ".venv/lib/python3.11/site-packages/half-1.0.dist-info"
    whole = half.with_name("whole-1.0.dist-info")
    half.mkdir()
    whole.mkdir()
    (whole / "INSTALLER").write_text("pip\n")
    clone.calls()
    done = clone.run("echo", "spoken")
    assert (done.returncode, done.stdout) == (0, "spoken\n")
    assert steps(clone.calls()) == ["torch", "cpu list", "check", "project"]
    assert not half.exists()
    assert whole.exists()


def test_a_half_made_venv_is_made_anew(clone: Clone) -> None:
    (clone.root / ".venv/bin").mkdir(parents=True)
    assert clone.run().returncode == 0
    assert steps(clone.calls())[0] == "venv"


def test_another_device_is_another_venv(clone: Clone) -> None:
    clone.run()
    clone.calls()
    clone.run(OMNI_SPEAK_DEVICE="cuda")
    assert steps(clone.calls()) == ["venv", "cuda list", "check", "project"]
    refused = clone.run(OMNI_SPEAK_DEVICE="abacus")
    assert refused.returncode == 1
    assert "must be cpu or cuda" in refused.stderr


def test_torch_comes_from_pytorchs_index_where_pip_has_none(clone: Clone) -> None:
    done = clone.run(FAIL="torch==")
    assert done.returncode == 0
    assert "PyTorch's own index" in done.stderr
    assert "ERROR" not in done.stderr
    first, second = (call for call in clone.calls() if "torch==" in call)
    assert "--index-url" not in first
    assert "--index-url https://download.pytorch.org/whl/cpu" in second


def test_two_at_once_take_turns(clone: Clone) -> None:
    with (clone.root / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            [clone.root / "scripts" / "setup"],
            env=clone.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert "waiting for it" in waiting.stderr.readline()
        assert clone.calls() == []
    with waiting:
        assert waiting.wait(30) == 0
    assert steps(clone.calls())[0] == "venv"


def test_no_python_is_said_plainly(clone: Clone, tmp_path: Path) -> None:
    Path(clone.environment["PATH"].split(":")[0], "python3.11").unlink()
    programs = tmp_path / "few"
    programs.mkdir()
    for name in ("bash", "readlink", "cat", "sha256sum", "cut", "flock", "df", "awk"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    done = clone.run(PATH=str(programs))
    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        "Python 3.11 is needed and is not on PATH (looked for python3.11, python3, python)"
    )


def test_the_thread_environment_is_set_and_the_users_kept(clone: Clone) -> None:
    clone.run()
    names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    show = ("bash", "-c", f"echo {' '.join(f'${name}' for name in names)}")
    assert clone.run(*show).stdout == "1 PASSIVE 0\n"
    assert clone.run(*show, OMP_NUM_THREADS="4").stdout == "4 PASSIVE 0\n"


def test_the_venvs_programs_come_first(clone: Clone) -> None:
    clone.run()
    program = clone.root / ".venv/bin/omni-speak"
    program.write_text("#!/usr/bin/env bash\nprintf '%s|' \"$@\"\n")
    program.chmod(0o755)
    shutil.copy(ROOT / "scripts/omni-speak", clone.root / "scripts/omni-speak")
    done = subprocess.run(
        [clone.root / "scripts/omni-speak", "say", "two words"],
        env=clone.environment,
        cwd=os.sep,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "say|two words|"
