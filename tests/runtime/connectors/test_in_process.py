"""The connector between two threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from omni_speak.runtime.connectors.base import ConsumerGone, Message, ProducerGone
from omni_speak.runtime.connectors.in_process import InProcessConnector


def message(req_id: str) -> Message:
    return Message(req_id, "chunk", {"x": torch.ones(1)})


def test_messages_arrive_in_order() -> None:
    connector = InProcessConnector()
    connector.send([message("a"), message("b")])
    connector.send([message("c")])
    assert [m.req_id for m in connector.receive()] == ["a", "b", "c"]
    assert connector.receive() == []


def test_a_full_connector_waits_for_its_consumer() -> None:
    connector = InProcessConnector(capacity=2)
    connector.send([message("a"), message("b")])
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(connector.send, [message("c")])
        got = connector.receive(10) + connector.receive(10)
        third.result(10)
    assert [m.req_id for m in got] == ["a", "b", "c"]


def test_a_consumer_that_takes_nothing_is_gone() -> None:
    connector = InProcessConnector(capacity=1, patience_s=0.05)
    connector.send([message("a")])
    with pytest.raises(ConsumerGone, match="took nothing"):
        connector.send([message("b")])
    with pytest.raises(ValueError, match="2 messages do not fit in 1"):
        connector.send([message("b"), message("c")])


def test_either_end_may_close() -> None:
    connector = InProcessConnector()
    connector.send([message("a")])
    connector.close()
    with pytest.raises(ConsumerGone, match="closed"):
        connector.send([message("b")])
    assert [m.req_id for m in connector.receive()] == ["a"]
    with pytest.raises(ProducerGone):
        connector.receive()
