from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_speak.streams.wire import (
    HEADER_BYTES,
    Encoding,
    Flag,
    Kind,
    WireError,
    WireFrame,
    decode,
    encode,
)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


frames = st.builds(
    WireFrame,
    kind=unsigned(8),
    flags=unsigned(8),
    encoding=unsigned(8),
    context=unsigned(16),
    epoch=unsigned(16),
    seq=unsigned(32),
    tick=unsigned(32),
    pts=unsigned(64),
    payload=st.binary(max_size=64),
)


@given(frames)
def test_decode_undoes_encode(frame: WireFrame) -> None:
    assert decode(encode(frame)) == frame


@given(st.binary(max_size=80) | st.binary(max_size=60).map(lambda tail: b"\x16" + tail))
def test_any_bytes_give_a_frame_or_a_wire_error(data: bytes) -> None:
    try:
        frame = decode(data)
    except WireError:
        return
    assert len(frame.payload) <= len(data) - HEADER_BYTES


def test_the_layout_is_the_documented_one() -> None:
    frame = WireFrame(
        kind=Kind.AUDIO,
        flags=Flag.FIRST | Flag.KEY,
        encoding=Encoding.PCM_F32LE,
        context=0x0102,
        epoch=0x0304,
        seq=0x05060708,
        tick=0x090A0B0C,
        pts=0x0D0E0F1011121314,
        payload=b"xy",
    )
    assert encode(frame) == bytes.fromhex("1601050102010403080706050c0b0a0914131211100f0e0d7879")


def test_a_longer_header_is_skipped() -> None:
    frame = WireFrame(kind=1, encoding=0, context=1, seq=2, tick=3, pts=4, payload=b"more!pcm.")
    data = b"\x17" + encode(frame)[1:]
    assert decode(data).payload == b"!pcm."


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "at least 24 bytes"),
        (b"\x26" + bytes(23), "version 2"),
        (b"\x15" + bytes(23), "header of 20 bytes"),
        (b"\x17" + bytes(23), "header of 28 bytes"),
    ],
)
def test_faults_are_named(data: bytes, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        decode(data)


def test_a_field_out_of_range_is_refused() -> None:
    with pytest.raises(WireError, match="out of range"):
        encode(WireFrame(kind=1, encoding=0, context=70_000, seq=0, tick=0, pts=0, payload=b""))
