"""The shared-memory connector between two real processes, one of which may be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory

import pytest
import torch

from omni_speak.runtime.connectors.base import ConsumerGone, Message, ProducerGone
from omni_speak.runtime.connectors.shared_memory import (
    MAX_UNREAD,
    SharedMemoryReceiver,
    SharedMemorySender,
    shared_memory_connector,
)
from tests.models.tiny import TinyCodec
from tests.runtime.conftest import SteppedCore
from tests.runtime.connectors import vocoder_process

Stepped = Callable[..., SteppedCore]
Ends = tuple[SharedMemorySender, SharedMemoryReceiver]


@pytest.fixture
def ends() -> Iterator[Ends]:
    sender, receiver = shared_memory_connector(capacity_bytes=1 << 16, patience_s=0.3)
    yield sender, receiver
    receiver.close()
    sender.close()


def message(req_id: str = "a", size: int = 100, fill: int = 1) -> Message:
    return Message(req_id, "chunk", {"x": torch.full((size,), fill, dtype=torch.int64)})


def kill(process: BaseProcess) -> None:
    process.kill()
    process.join()


def test_every_type_and_shape_crosses_the_process_boundary(ends: Ends) -> None:
    sender, receiver = ends
    process, results = vocoder_process.start(vocoder_process.describe, receiver)
    payload = {
        "i64": torch.arange(6).view(2, 3),
        "f32": torch.rand(5)[::2],  # not contiguous
        "bf16": torch.tensor([0.5, -2.0], dtype=torch.bfloat16),
        "u8": torch.tensor([255], dtype=torch.uint8),
        "flag": torch.tensor(True),
        "none": torch.empty(0, 4),
    }
    sender.send([Message("a", "full", payload), message("b", 3)])
    req_id, kind, got = results.recv()
    assert (req_id, kind) == ("a", "full")
    assert got == {
        key: (str(value.dtype), list(value.shape), value.to(torch.float64).tolist())
        for key, value in payload.items()
    }
    assert results.recv()[0] == "b"
    sender.close()
    process.join(30)
    assert process.exitcode == 0


def test_the_ring_wraps_and_keeps_order(ends: Ends) -> None:
    sender, receiver = ends
    got: list[Message] = []
    for i in range(200):  # 200 batches of up to 24 kB through 64 kB
        sender.send([message(str(i), size=1 + (i * 997) % 3000, fill=i)])
        if i % 2:
            got += receiver.receive()
    assert [m.req_id for m in got] == [str(i) for i in range(200)]
    for i, m in enumerate(got):
        assert m.payload["x"].tolist() == [i] * (1 + (i * 997) % 3000)


def test_what_does_not_fit_is_refused_by_size(ends: Ends) -> None:
    with pytest.raises(ValueError, match="80000 bytes does not fit in 65536"):
        ends[0].send([message(size=10_000)])
    ends[0].send([message(size=8_000)])  # and the connector goes on
    assert len(ends[1].receive()) == 1


@pytest.mark.parametrize(
    ("size", "count"),
    [(2000, 4), (1, MAX_UNREAD)],
    ids=["a ring full", "as many batches as may be unread"],
)
def test_a_consumer_that_stops_reading_is_gone(ends: Ends, size: int, count: int) -> None:
    sender, receiver = ends
    process, results = vocoder_process.start(vocoder_process.hang, receiver)
    sender.send([message(size=2 * size)])
    assert results.recv() == "read"
    for _ in range(count):
        sender.send([message(size=size)])
    with pytest.raises(ConsumerGone, match="read nothing for"):
        sender.send([message(size=size)])
    kill(process)


def test_a_killed_consumer_is_noticed_and_leaves_no_memory_behind(ends: Ends) -> None:
    sender, receiver = ends
    process, results = vocoder_process.start(vocoder_process.hang, receiver)
    sender.send([message()])
    assert results.recv() == "read"
    kill(process)
    with pytest.raises(ConsumerGone, match="died"):
        sender.send([message()])
    name = sender._memory.name
    sender.close()
    sender.close()  # twice is harmless
    with pytest.raises(FileNotFoundError):
        SharedMemory(name)


def test_a_consumer_reads_what_was_sent_before_the_producer_left(ends: Ends) -> None:
    sender, receiver = ends
    sender.send([message("a"), message("b")])
    sender._socket.close()  # as when its process dies
    assert [m.req_id for m in receiver.receive(1)] == ["a", "b"]
    with pytest.raises(ProducerGone):
        receiver.receive(1)
    sender._memory.close()
    sender._memory.unlink()


def test_talker_here_vocoder_there(stepped: Stepped) -> None:
    """Codes leave the builder's thread for a vocoder in another process; its audio is what the
    codec gives here."""
    sender, receiver = shared_memory_connector()
    process, results = vocoder_process.start(vocoder_process.decode, receiver)
    core = stepped()
    core.runner.builder.send = lambda payloads: sender.send(
        [Message(req_id, "chunk", payload) for req_id, payload in payloads.items()]
    )
    ids = [core.add(f"hello {i}", seed=i) for i in range(5)]
    core.run()
    sender.close()
    pid, pcm = results.recv()
    process.join(30)
    assert pid == process.pid and process.exitcode == 0
    codec = TinyCodec()
    for req_id in ids:
        codes = torch.tensor(core.codes(req_id))[None]
        expected, _ = codec.decode(codes, codec.initial_state(1))
        assert pcm[req_id] == expected[0].tolist()


def test_a_killed_vocoder_reaches_the_talker_as_the_builders_error(stepped: Stepped) -> None:
    sender, receiver = shared_memory_connector()
    process, results = vocoder_process.start(vocoder_process.hang, receiver)
    core = stepped(tiny={"never_ends": True})
    core.runner.builder.send = lambda payloads: sender.send(
        [Message(req_id, "chunk", payload) for req_id, payload in payloads.items()]
    )
    core.add("hello", max_frames=40)
    core.step()
    assert results.recv() == "read"
    kill(process)
    with pytest.raises(ConsumerGone):
        core.run()
    sender.close()
