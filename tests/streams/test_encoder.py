from __future__ import annotations

import io
from itertools import pairwise

import av
import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from omni_speak.streams.audio import to_s16le, wav_header
from omni_speak.streams.encoder import OPUS_RATES, SAMPLE_RATES, EncodedFormat, Encoder

SOURCE = 24_000
FRAME = 1920
FORMATS: list[EncodedFormat] = [
    "pcm_s16le", "pcm_f32le", "mulaw", "alaw", "opus", "wav", "mp3", "ogg_opus", "flac", "aac",
]  # fmt: skip


def sweep(seconds: float = 1.0) -> NDArray[np.float32]:
    time = np.arange(int(SOURCE * seconds)) / SOURCE
    return (0.5 * np.sin(2 * np.pi * (200 + 900 * time) * time)).astype(np.float32)


def encoded(format: EncodedFormat, rate: int, pieces: list[NDArray[np.float32]]) -> bytes:
    encoder = Encoder(format, SOURCE, rate)
    return b"".join([*(encoder.encode(piece) for piece in pieces), encoder.flush()])


def rates(format: EncodedFormat) -> tuple[int, ...]:
    return OPUS_RATES if format in ("opus", "ogg_opus") else SAMPLE_RATES


@pytest.mark.parametrize("rate", SAMPLE_RATES)
@given(cuts=st.lists(st.integers(0, SOURCE // 4), max_size=8))
@settings(max_examples=15, deadline=None)
def test_streamed_equals_whole_sample_for_sample(rate: int, cuts: list[int]) -> None:
    pcm = sweep(0.25)
    pieces = [pcm[a:b] for a, b in pairwise([0, *sorted(cuts), len(pcm)])]
    whole = pcm if rate == SOURCE else soxr.resample(pcm, SOURCE, rate)
    streamed = np.frombuffer(encoded("pcm_f32le", rate, pieces), "<f4")
    np.testing.assert_array_equal(streamed, whole)
    assert encoded("pcm_s16le", rate, pieces) == to_s16le(whole)


@pytest.mark.parametrize("format", FORMATS)
def test_how_the_samples_were_cut_does_not_matter(format: EncodedFormat) -> None:
    pcm = sweep()
    for rate in rates(format):
        whole = encoded(format, rate, [pcm])
        for size in (905, FRAME):
            pieces = [pcm[at : at + size] for at in range(0, len(pcm), size)]
            assert encoded(format, rate, pieces) == whole


@pytest.mark.parametrize("format", ["mulaw", "alaw"])
@pytest.mark.parametrize("rate", [8000, 24_000])
def test_companded_samples_are_a_byte_each(format: EncodedFormat, rate: int) -> None:
    data = encoded(format, rate, [sweep()])
    assert len(data) == rate
    decoder = av.CodecContext.create(f"pcm_{format}", "r")
    decoder.sample_rate, decoder.layout = rate, "mono"  # type: ignore[attr-defined]
    back = np.concatenate(
        [frame.to_ndarray()[0] for frame in decoder.decode(av.Packet(data))]  # type: ignore[attr-defined]
    )
    plain = np.frombuffer(encoded("pcm_s16le", rate, [sweep()]), "<i2")
    assert np.abs(back.astype(int) - plain).max() <= 1024
    assert np.corrcoef(back, plain)[0, 1] > 0.999


@pytest.mark.parametrize("rate", OPUS_RATES)
def test_opus_is_packets_of_20_ms_after_their_lengths(rate: int) -> None:
    data, packets = encoded("opus", rate, [sweep()]), []
    while data:
        size = int.from_bytes(data[:2], "little")
        packets.append(data[2 : 2 + size])
        data = data[2 + size :]
    decoder = av.CodecContext.create("libopus", "r")
    pcm = np.concatenate(
        [
            frame.to_ndarray().reshape(-1, frame.layout.nb_channels)[:, 0]  # type: ignore[attr-defined]
            for packet in packets
            for frame in decoder.decode(av.Packet(packet))  # type: ignore[attr-defined]
        ]
    )
    assert len(packets) in (50, 51)
    assert len(pcm) == len(packets) * 960


@pytest.mark.parametrize("format", ["wav", "mp3", "ogg_opus", "flac", "aac"])
def test_a_container_starts_at_once_and_is_read_back(format: EncodedFormat) -> None:
    pcm = sweep(2.0)
    for rate in rates(format):
        encoder = Encoder(format, SOURCE, rate)
        early = b"".join(encoder.encode(pcm[at : at + FRAME]) for at in range(0, SOURCE, FRAME))
        assert len(early) > 500
        late = [encoder.encode(pcm[at : at + FRAME]) for at in range(SOURCE, 2 * SOURCE, FRAME)]
        data = b"".join([early, *late, encoder.flush()])
        with av.open(io.BytesIO(data)) as file:
            stream = file.streams.audio[0]
            frames = [frame.to_ndarray() for frame in file.decode(stream)]
            played = stream.rate or 0
        samples = sum(frame.shape[-1] for frame in frames)
        assert played == (48_000 if format == "ogg_opus" else rate)
        assert samples / played == pytest.approx(2.0, abs=0.3)


def test_wav_has_one_header_of_unknown_size_and_no_trailer() -> None:
    pcm = sweep()
    data = encoded("wav", SOURCE, [pcm, pcm, pcm])
    assert data == wav_header(SOURCE) + 3 * to_s16le(pcm)
    assert encoded("wav", SOURCE, []) == wav_header(SOURCE)


@pytest.mark.parametrize(
    ("format", "rate", "message"),
    [
        ("pcm", 24_000, "format must be one of pcm_s16le, .*'pcm'"),
        ("mp3", 11_025, "rate of mp3 must be one of 8000, .* 48000; got 11025"),
        ("opus", 44_100, "rate of opus must be one of 8000, 16000, 24000, 48000; got 44100"),
    ],
)
def test_what_is_not_there_is_refused(format: EncodedFormat, rate: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Encoder(format, SOURCE, rate)
