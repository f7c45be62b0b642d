"""The other side of the process boundary: a vocoder that gets codes and gives audio."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from omni_speak.runtime.connectors.base import Message, ProducerGone
from omni_speak.runtime.connectors.shared_memory import SharedMemoryReceiver
from tests.models.tiny import TinyCodec

Consumer = Callable[[SharedMemoryReceiver, Connection], None]


def start(consume: Consumer, receiver: SharedMemoryReceiver) -> tuple[BaseProcess, Connection]:
    """Run `consume` in a process of its own, which takes the receiver over."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=consume, args=(receiver, theirs), daemon=True)
    process.start()
    theirs.close()
    receiver.close()
    return process, ours


def decode(receiver: SharedMemoryReceiver, results: Connection) -> None:
    """Frame by frame, a codec state per request; the pcm of all when the producer is gone."""
    codec = TinyCodec()
    states: dict[str, Any] = {}
    pcm: dict[str, list[float]] = {}
    for message in _until_producer_gone(receiver):
        state = states.get(message.req_id) or codec.initial_state(1)
        codes = message.payload["codes.audio"][None, None]
        audio, states[message.req_id] = codec.decode(codes, state)
        pcm.setdefault(message.req_id, []).extend(audio[0].tolist())
    results.send((os.getpid(), pcm))


def describe(receiver: SharedMemoryReceiver, results: Connection) -> None:
    """What arrived, as plain values."""
    for message in _until_producer_gone(receiver):
        results.send(
            (
                message.req_id,
                message.kind,
                {
                    key: (str(value.dtype), list(value.shape), value.to(torch.float64).tolist())
                    for key, value in message.payload.items()
                },
            )
        )


def hang(receiver: SharedMemoryReceiver, results: Connection) -> None:
    """Reads one batch, then nothing any more."""
    receiver.receive(60)
    results.send("read")
    results.recv()


def _until_producer_gone(receiver: SharedMemoryReceiver) -> Any:
    while True:
        try:
            messages: list[Message] = receiver.receive(60)
        except ProducerGone:
            return
        yield from messages
