"""Samples to the bytes of a format while they come: resampled, encoded, and put in a container.

What leaves is the same however the samples were cut on their way in. PyAV is loaded by the first
encoder that needs it; raw PCM and WAV never do.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any, Literal, Protocol, get_args

import numpy as np
import soxr
from numpy.typing import NDArray

from omni_speak.streams.audio import to_f32le, to_s16le, wav_header
from omni_speak.streams.messages import SAMPLE_RATES

RawFormat = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw", "opus"]
ContainerFormat = Literal["wav", "mp3", "ogg_opus", "flac", "aac"]
EncodedFormat = RawFormat | ContainerFormat
OPUS_RATES = (8000, 16000, 24000, 48000)
OPUS_PACKET_MS = 20

_CODECS = {
    "mulaw": "pcm_mulaw",
    "alaw": "pcm_alaw",
    "opus": "libopus",
    "mp3": "libmp3lame",
    "ogg_opus": "libopus",
    "flac": "flac",
    "aac": "aac",
}
# (muxer, its options): nothing that needs to go back, and each packet leaves at once.
_MUXERS: dict[str, tuple[str, dict[str, str]]] = {
    "mp3": ("mp3", {"write_xing": "0", "id3v2_version": "0"}),
    # Bit-exact: without it each stream gets a serial number drawn by chance.
    "ogg_opus": ("ogg", {"page_duration": str(OPUS_PACKET_MS * 1000), "fflags": "+bitexact"}),
    "flac": ("flac", {}),
    "aac": ("adts", {}),
}


class _Sink(Protocol):
    def write(self, pcm: NDArray[np.float32]) -> bytes: ...
    def close(self) -> bytes: ...


class Encoder:
    """One mono stream of float32 samples in -1..1 at `source_rate` Hz, as bytes of `format` at
    `target_rate` Hz.

    `encode` gives what is ready, which may be nothing yet: a resampler and a codec look a few
    milliseconds ahead. `flush` gives the rest and ends the stream. Raw samples are whole. A
    container's header leaves exactly once, with the first bytes. `opus` is packets of 20 ms, each
    after its length as a little-endian u16.

    Raises ValueError naming the format or the rate that is not there.
    """

    def __init__(self, format: EncodedFormat, source_rate: int, target_rate: int) -> None:
        known = (*get_args(RawFormat), *get_args(ContainerFormat))
        if format not in known:
            raise ValueError(f"format must be one of {', '.join(known)}; got {format!r}")
        rates = OPUS_RATES if format in ("opus", "ogg_opus") else SAMPLE_RATES
        if target_rate not in rates:
            raise ValueError(
                f"the sample rate of {format} must be one of {', '.join(map(str, rates))}; "
                f"got {target_rate}"
            )
        self._resampler = (
            None
            if source_rate == target_rate
            else soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32")
        )
        self._sink = _sink(format, target_rate)

    def encode(self, pcm: NDArray[np.float32]) -> bytes:
        if self._resampler is not None:
            pcm = self._resampler.resample_chunk(pcm)
        return self._sink.write(pcm)

    def flush(self) -> bytes:
        rest = b""
        if self._resampler is not None:
            tail = self._resampler.resample_chunk(np.empty(0, np.float32), last=True)
            rest = self._sink.write(tail)
        return rest + self._sink.close()


def opus_packets(data: bytes) -> int:
    """How many packets `opus` data holds."""
    count = at = 0
    while at < len(data):
        at += 2 + int.from_bytes(data[at : at + 2], "little")
        count += 1
    return count


def _sink(format: EncodedFormat, rate: int) -> _Sink:
    match format:
        case "pcm_s16le" | "pcm_f32le" | "wav":
            return _Pcm(format, rate)
        case "mulaw" | "alaw" | "opus":
            return _Codec(format, rate)
        case _:
            return _Container(format, rate)


class _Pcm:
    def __init__(self, format: Literal["pcm_s16le", "pcm_f32le", "wav"], rate: int) -> None:
        self._to_bytes = to_f32le if format == "pcm_f32le" else to_s16le
        self._header = wav_header(rate) if format == "wav" else b""

    def write(self, pcm: NDArray[np.float32]) -> bytes:
        header, self._header = self._header, b""
        return header + self._to_bytes(pcm)

    def close(self) -> bytes:
        return self._header


class _Codec:
    """A codec's bare packets."""

    def __init__(self, format: Literal["mulaw", "alaw", "opus"], rate: int) -> None:
        import av

        self._framed = format == "opus"
        self._codec: Any = av.CodecContext.create(_CODECS[format], "w")
        _configure(self._codec, rate)
        self._codec.open()
        # An opus packet takes all its samples at once, and its last one is filled with silence.
        self._block = rate * OPUS_PACKET_MS // 1000 if self._framed else 1
        self._waiting = np.empty(0, np.float32)
        self._rate = rate

    def write(self, pcm: NDArray[np.float32]) -> bytes:
        pcm = np.concatenate([self._waiting, pcm])
        whole = len(pcm) // self._block * self._block
        self._waiting = pcm[whole:]
        size = self._block if self._framed else max(whole, 1)
        return b"".join(
            self._bytes(self._codec.encode(_av_frame(pcm[at : at + size], self._rate)))
            for at in range(0, whole, size)
        )

    def close(self) -> bytes:
        rest = b""
        if len(self._waiting):
            rest = self.write(np.zeros(self._block - len(self._waiting), np.float32))
        return rest + self._bytes(self._codec.encode(None))

    def _bytes(self, packets: list[Any]) -> bytes:
        data = [bytes(packet) for packet in packets]
        if self._framed:
            data = [struct.pack("<H", len(each)) + each for each in data]
        return b"".join(data)


class _Container:
    """A codec's packets in a container that is written front to back."""

    def __init__(self, format: ContainerFormat, rate: int) -> None:
        import av

        muxer, options = _MUXERS[format]
        self._out = _Outgoing()
        self._file: Any = av.open(
            self._out, "w", format=muxer, options={**options, "flush_packets": "1"}
        )
        self._stream: Any = self._file.add_stream(_CODECS[format], rate=rate)
        codec: Any = self._stream.codec_context
        _configure(codec, rate)
        codec.open()
        self._block: int = codec.frame_size or rate // 50
        self._file.start_encoding()
        self._waiting = np.empty(0, np.float32)
        self._samples = 0
        self._rate = rate

    def write(self, pcm: NDArray[np.float32]) -> bytes:
        pcm = np.concatenate([self._waiting, pcm])
        whole = len(pcm) // self._block * self._block
        self._waiting = pcm[whole:]
        for at in range(0, whole, self._block):
            self._encode(pcm[at : at + self._block])
        return self._out.take()

    def close(self) -> bytes:
        if len(self._waiting):
            self._encode(self._waiting)
        self._file.mux(self._stream.encode(None))
        self._file.close()
        return self._out.take()

    def _encode(self, pcm: NDArray[np.float32]) -> None:
        frame = _av_frame(pcm, self._rate)
        frame.pts, frame.time_base = self._samples, Fraction(1, self._rate)
        self._samples += len(pcm)
        self._file.mux(self._stream.encode(frame))


class _Outgoing:
    """Where a muxer writes to: it cannot seek, so that the muxer does not go back."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


def _configure(codec: Any, rate: int) -> None:
    codec.sample_rate = rate
    codec.layout = "mono"
    codec.time_base = Fraction(1, rate)
    codec.format = {"aac": "fltp", "libmp3lame": "fltp"}.get(codec.name, "s16")
    if codec.name == "libmp3lame":
        codec.bit_rate = min(128_000, 4 * rate)
    if codec.name == "libopus":
        codec.options = {"application": "audio", "frame_duration": str(OPUS_PACKET_MS)}


def _av_frame(pcm: NDArray[np.float32], rate: int) -> Any:
    """PyAV converts it to what the codec takes."""
    import av

    samples = np.frombuffer(to_s16le(pcm), np.int16).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
    frame.sample_rate = rate
    return frame
