"""Snapshots: clones on the host, ordered copies on CUDA (whose streams are recorded, not run)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch

from omni_speak.runtime import snapshot
from omni_speak.runtime.snapshot import take_snapshot

TOKENS, CODES = torch.tensor([3, 5]), torch.tensor([[1, 2], [3, 4]])


def test_R22_host_tensors_are_cloned() -> None:
    tokens, codes = TOKENS.clone(), CODES.clone()
    req_ids = ["a", "b", "c"]
    taken = take_snapshot(req_ids, [0, 2], tokens, codes)
    tokens.zero_(), codes.zero_(), req_ids.clear()
    taken.wait()
    assert taken.req_ids == ("a", "b", "c") and taken.sampled == (0, 2)
    assert taken.tokens.tolist() == [3, 5] and taken.codes.tolist() == [[1, 2], [3, 4]]


class Log(list[str]):
    """CUDA's calls in the order they were made."""

    def stream(self, name: str) -> Any:
        log = self

        class Stream:
            def wait_stream(self, other: Any) -> None:
                log.append(f"{name} waits for {other}")

        return Stream()

    def event(self, blocking: bool = False) -> Any:
        log = self

        class Event:
            def record(self) -> None:
                log.append("event recorded")

            def synchronize(self) -> None:
                log.append("event waited for")

        assert blocking  # no spinning on the driver
        return Event()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Log:
    log, empty, copy = Log(), torch.empty, torch.Tensor.copy_

    @contextmanager
    def on_stream(stream: Any) -> Any:
        log.append("enter side stream")
        yield
        log.append("leave side stream")

    def pinned(*args: Any, pin_memory: bool, **kwargs: Any) -> torch.Tensor:
        assert pin_memory
        return empty(*args, **kwargs)

    def copied(self: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> torch.Tensor:
        assert non_blocking
        log.append("copy")
        return copy(self, source)

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "compute")
    monkeypatch.setattr(torch.cuda, "stream", on_stream)
    monkeypatch.setattr(torch.cuda, "Event", log.event)
    monkeypatch.setattr(snapshot.torch, "empty", pinned)
    monkeypatch.setattr(torch.Tensor, "copy_", copied)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda self, stream: log.append("memory kept for the copy")
    )
    return log


def test_R22_device_tensors_travel_as_one_ordered_copy(cuda: Log) -> None:
    tokens, codes = TOKENS.clone(), CODES.clone()
    taken = take_snapshot(["a", "b"], [0, 1], tokens, codes, cuda.stream("side"))
    assert cuda == [
        "side waits for compute",
        "enter side stream",
        "copy",
        "event recorded",
        "leave side stream",
        "memory kept for the copy",
    ]
    tokens.zero_(), codes.zero_()
    taken.wait()
    assert cuda[-1] == "event waited for"
    assert taken.tokens.tolist() == [3, 5] and taken.codes.tolist() == [[1, 2], [3, 4]]
