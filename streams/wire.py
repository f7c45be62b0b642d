"""The binary duplex frame: a 24-byte little-endian header, then the payload.

    0  u8  version (high nibble) | header length in 4-byte words (low nibble)
    1  u8  kind            4  u16 context handle     12 u32 tick of the first frame inside
    2  u8  flags           6  u16 epoch              16 u64 pts, in samples, per context
    3  u8  encoding        8  u32 seq, per session

Pure functions over bytes. The header length lets a later minor version add words at its end; a
reader skips what it does not know, kinds included.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

VERSION = 1
_HEADER = struct.Struct("<BBBBHHIIQ")
HEADER_BYTES = _HEADER.size


class WireError(ValueError):
    """The bytes are not a frame, or the fields do not fit one."""


class Kind(IntEnum):
    AUDIO = 1
    TEXT = 2
    CODES = 9


class Flag(IntFlag):
    FIRST = 1
    LAST = 2
    KEY = 4
    DISCONTINUITY = 8
    REPLAY = 16
    FILLER = 32


class Encoding(IntEnum):
    PCM_S16LE = 0
    PCM_F32LE = 1
    OPUS = 2
    MULAW = 3
    ALAW = 4
    CODES_U16 = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFrame:
    """One binary message. `kind`, `flags` and `encoding` stay plain integers so that a frame from
    a newer peer survives decoding and can be skipped."""

    kind: int
    encoding: int
    context: int
    seq: int
    tick: int
    pts: int
    payload: bytes
    flags: int = 0
    epoch: int = 0


def encode(frame: WireFrame) -> bytes:
    """Raises WireError if a field is out of its range."""
    try:
        header = _HEADER.pack(
            VERSION << 4 | HEADER_BYTES // 4,
            frame.kind,
            frame.flags,
            frame.encoding,
            frame.context,
            frame.epoch,
            frame.seq,
            frame.tick,
            frame.pts,
        )
    except struct.error as error:
        raise WireError(f"a header field is out of range: {error}") from None
    return header + frame.payload


def decode(data: bytes) -> WireFrame:
    """Raises WireError if `data` is shorter than its header or of another version."""
    if len(data) < HEADER_BYTES:
        raise WireError(f"a frame has at least {HEADER_BYTES} bytes, got {len(data)}")
    first, kind, flags, encoding, context, epoch, seq, tick, pts = _HEADER.unpack_from(data)
    version, header_bytes = first >> 4, (first & 0x0F) * 4
    if version != VERSION:
        raise WireError(f"frame version {version} is not supported, only {VERSION}")
    if not HEADER_BYTES <= header_bytes <= len(data):
        raise WireError(f"a header of {header_bytes} bytes does not fit {len(data)} bytes")
    return WireFrame(
        kind=kind,
        flags=flags,
        encoding=encoding,
        context=context,
        epoch=epoch,
        seq=seq,
        tick=tick,
        pts=pts,
        payload=data[header_bytes:],
    )
