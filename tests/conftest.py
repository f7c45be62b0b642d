"""What every test shares: asyncio as anyio's backend, and quiet, single-threaded torch."""

from __future__ import annotations

import os

import pytest

# Before torch is imported: two spinning OpenMP threads on two cores cost seconds per step.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
