from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from omni_speak.streams.audio import S16Reader, to_s16le, wav_header, write_audio

RATE = 24_000


def tone(seconds: float = 0.5) -> NDArray[np.float32]:
    return (0.5 * np.sin(np.arange(int(RATE * seconds)) * 0.1)).astype(np.float32)


def test_s16_clips_and_is_little_endian() -> None:
    pcm = np.array([0.0, 1.0, -1.0, 7.0, -7.0], np.float32)
    assert to_s16le(pcm) == np.array([0, 32767, -32767, 32767, -32767], "<i2").tobytes()


def test_header_of_a_stream_of_unknown_length() -> None:
    header = wav_header(RATE)
    assert len(header) == 44
    assert header[4:8] == header[40:44] == b"\xff\xff\xff\xff"
    pcm, rate = soundfile.read(io.BytesIO(wav_header(RATE, 8) + bytes(8)))
    assert (len(pcm), rate) == (4, RATE)


@pytest.mark.parametrize("size", [1, 3, 905, 2731])
def test_half_samples_wait_for_their_other_half(size: int) -> None:
    data = to_s16le(tone())
    reader = S16Reader()
    parts = [reader.feed(data[i : i + size]) for i in range(0, len(data), size)]
    assert np.concatenate(parts).tobytes() == data


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_files_hold_what_was_written(tmp_path: Path, suffix: str) -> None:
    path, pcm = tmp_path / f"a.{suffix}", tone()
    assert write_audio(path, RATE, np.split(pcm, 5)) == len(pcm)
    read, rate = soundfile.read(path)
    assert rate == RATE
    if suffix in ("wav", "flac"):
        np.testing.assert_allclose(read, pcm, atol=1e-4)
    else:
        assert len(read) >= len(pcm)


def test_an_unknown_suffix_is_refused_before_a_file_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.wav, \.flac"):
        write_audio(tmp_path / "a.xyz", RATE, [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["wav", "flac"])
def test_a_pipe_gets_it_too(suffix: str) -> None:
    pcm, (reader, writer) = tone(2.0), os.pipe()
    received: list[bytes] = []

    def read() -> None:
        with os.fdopen(reader, "rb") as file:
            received.append(file.read())

    thread = threading.Thread(target=read)
    thread.start()
    write_audio(writer, RATE, np.split(pcm, 5), suffix)  # type: ignore[arg-type]
    os.close(writer)
    thread.join()
    if suffix == "wav":
        assert received[0] == wav_header(RATE) + to_s16le(pcm)
    else:
        np.testing.assert_allclose(soundfile.read(io.BytesIO(received[0]))[0], pcm, atol=1e-4)


def test_a_broken_pipe_is_reported_as_one() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        write_audio(writer, RATE, [tone()])
    os.close(writer)
