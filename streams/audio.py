"""Samples to bytes and files: s16le, streamed WAV, and what soundfile encodes."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import soundfile

AudioFormat = Literal["wav", "flac", "ogg", "mp3", "pcm"]
UNKNOWN_SIZE = 0xFFFFFFFF
WAV_HEADER_BYTES = 44

WavEncoding = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]
_WAV_ENCODINGS = {"pcm_s16le": (1, 2), "pcm_f32le": (3, 4), "mulaw": (7, 1), "alaw": (6, 1)}
"""Microsoft's format tag, and bytes per sample."""


def to_s16le(pcm: NDArray[np.float32]) -> bytes:
    """Float samples in -1..1, clipped, as little-endian 16-bit."""
    scaled = np.rint(np.clip(pcm, -1.0, 1.0) * 32767.0)
    data: bytes = scaled.astype("<i2").tobytes()
    return data


def to_f32le(pcm: NDArray[np.float32]) -> bytes:
    data: bytes = pcm.astype("<f4", copy=False).tobytes()
    return data


def wav_header(
    sample_rate: int, data_bytes: int | None = None, encoding: WavEncoding = "pcm_s16le"
) -> bytes:
    """The 44 bytes before mono samples; without `data_bytes` both sizes are 0xFFFFFFFF, which
    readers take as "until the end"."""
    riff_size = UNKNOWN_SIZE if data_bytes is None else data_bytes + WAV_HEADER_BYTES - 8
    data_size = UNKNOWN_SIZE if data_bytes is None else data_bytes
    tag, sample_bytes = _WAV_ENCODINGS[encoding]
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        riff_size,
        b"WAVE",
        b"fmt ",
        16,
        tag,
        1,  # channel
        sample_rate,
        sample_rate * sample_bytes,
        sample_bytes,
        8 * sample_bytes,
        b"data",
        data_size,
    )


class S16Reader:
    """Samples out of s16le bytes cut anywhere: half a sample waits for its other half."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> NDArray[np.int16]:
        data = self._rest + data
        whole = len(data) & ~1
        self._rest = data[whole:]
        return np.frombuffer(data[:whole], dtype="<i2").astype(np.int16, copy=False)


class AudioWriter:
    """Writes float blocks as they come: `with AudioWriter(target, rate) as w: w.write(pcm)`.

    `target` is a path, a file descriptor (left open) or a binary file. The format is the path's
    suffix unless given; without either, WAV. WAV and PCM go out block by block even where nothing
    can seek; the others are encoded in memory there and written at the end.
    Raises ValueError for an unknown format, OSError (BrokenPipeError) from the target.
    """

    def __init__(
        self,
        target: str | Path | int | BinaryIO,
        sample_rate: int,
        format: AudioFormat | None = None,
    ) -> None:
        self.samples = 0
        self._rate = sample_rate
        self._format = format or _format_of(target)
        self._owned = not hasattr(target, "write")
        self._file: BinaryIO
        if isinstance(target, int):
            self._file = open(target, "wb", buffering=0, closefd=False)  # noqa: SIM115
        elif isinstance(target, str | Path):
            self._file = Path(target).open("wb")  # noqa: SIM115
        else:
            self._file = target
        # A descriptor opened for appending reports itself seekable but ignores seeks.
        self._seekable = self._file.seekable() and isinstance(target, str | Path)
        self._memory: io.BytesIO | None = None
        self._encoder: soundfile.SoundFile | None = None
        if self._format == "wav":
            self._write_all(wav_header(sample_rate))
        elif self._format != "pcm":
            self._encoder = self._open_encoder()

    def write(self, pcm: NDArray[np.float32]) -> None:
        self.samples += len(pcm)
        if self._encoder is not None:
            self._encoder.write(pcm)
        else:
            self._write_all(to_s16le(pcm))

    def close(self) -> None:
        try:
            if self._encoder is not None:
                self._encoder.close()
            if self._memory is not None:
                self._write_all(self._memory.getvalue())
            if self._format == "wav" and self._seekable:
                self._file.seek(0)
                self._file.write(wav_header(self._rate, self.samples * 2))
        finally:
            if self._owned:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A broken pipe cannot take the rest either; do not let it hide the first error.
        if kind is None or self._seekable:
            self.close()
        elif self._owned:
            self._file.close()

    def _open_encoder(self) -> soundfile.SoundFile:
        # Here, because it loads libsndfile, which streamed WAV never needs.
        import soundfile

        if not self._seekable:
            self._memory = io.BytesIO()
        return soundfile.SoundFile(
            self._memory or self._file,
            "w",
            samplerate=self._rate,
            channels=1,
            format=self._format.upper(),
        )

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # an unbuffered pipe may take less than it is given
            view = view[self._file.write(view) :]


def write_audio(
    target: str | Path | int | BinaryIO,
    sample_rate: int,
    blocks: Iterable[NDArray[np.float32]],
    format: AudioFormat | None = None,
) -> int:
    """Write all blocks, see AudioWriter; returns the number of samples."""
    with AudioWriter(target, sample_rate, format) as writer:
        for block in blocks:
            writer.write(block)
    return writer.samples


def _format_of(target: object) -> AudioFormat:
    if not isinstance(target, str | Path):
        return "wav"
    suffix = os.path.splitext(target)[1].lstrip(".").lower()
    for known in get_args(AudioFormat):
        if suffix == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(
        f"cannot tell an audio format from {os.fspath(target)!r}; "
        f"known: {', '.join('.' + known for known in get_args(AudioFormat))}"
    )
