"""The codec: streamed is whole, batched is single, frames are exactly 1,920 samples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from omni_speak.models.registry import open_model
from omni_speak.models.wren.codec import Codec, mel_bank, overlap_add
from omni_speak.models.wren.config import CodecConfig, WrenConfig

CONFIG = WrenConfig(codec=CodecConfig(width=32, blocks=2))


@pytest.fixture(scope="module")
def codec() -> Codec:
    torch.manual_seed(0)
    return Codec(CONFIG).eval()


@pytest.fixture(scope="module")
def prepared(codec: Codec) -> Codec:
    """The same, packed and recorded."""
    prepared = Codec(CONFIG)
    prepared.load_state_dict(codec.state_dict())
    prepared.eval().prepare()
    return prepared


def codes(batch: int, frames: int) -> Tensor:
    return torch.randint(0, CONFIG.codec.codebook_size, (batch, frames, CONFIG.codec.codebooks))


def decode(codec: Codec, frames: Tensor, chunks: list[int]) -> Tensor:
    state, parts = codec.initial_state(len(frames)), []
    for part in frames.split(chunks, 1):
        pcm, state = codec.decode(part, state)
        assert pcm.shape == (len(frames), part.shape[1] * CONFIG.frame_samples)
        parts.append(pcm)
    return torch.cat(parts, 1)


@pytest.mark.parametrize("chunks", [[1] * 11, [3, 1, 7], [10, 1]])
def test_streamed_equals_whole_sample_for_sample(codec, chunks):
    frames = codes(2, 11)
    whole = decode(codec, frames, [11])
    torch.testing.assert_close(decode(codec, frames, chunks), whole, rtol=0, atol=1e-6)
    assert whole.abs().max() > 1e-3


def test_a_stream_sounds_the_same_alone_and_in_a_batch(codec):
    frames = codes(8, 5)
    batched = decode(codec, frames, [1] * 5)
    alone = decode(codec, frames[3:4], [1] * 5)
    torch.testing.assert_close(batched[3:4], alone, rtol=0, atol=1e-6)


def test_states_gather_and_scatter_by_row(codec):
    frames = codes(2, 6)
    _, first = codec.decode(frames[:1, :4], codec.initial_state(1))
    mixed = [torch.cat(pair) for pair in zip(first, codec.initial_state(1), strict=True)]
    pcm, _ = codec.decode(torch.stack([frames[0, 4:], frames[1, :2]]), mixed)
    samples = CONFIG.frame_samples
    whole = decode(codec, frames, [6])
    torch.testing.assert_close(pcm[0], whole[0, 4 * samples :], rtol=0, atol=1e-6)
    torch.testing.assert_close(pcm[1], whole[1, : 2 * samples], rtol=0, atol=1e-6)


def test_decoding_leaves_the_given_state_alone(codec):
    state = codec.initial_state(1)
    codec.decode(codes(1, 3), state)
    assert all(not part.any() for part in state)


def test_a_frame_changes_nothing_before_it(codec):
    frames = codes(1, 6)
    changed = frames.clone()
    changed[:, 4] = (changed[:, 4] + 1) % CONFIG.codec.codebook_size
    before, after = decode(codec, frames, [6]), decode(codec, changed, [6])
    boundary = 4 * CONFIG.frame_samples
    assert torch.equal(before[:, :boundary], after[:, :boundary])
    assert not torch.equal(before[:, boundary:], after[:, boundary:])


def test_encoding_gives_one_frame_per_1920_samples(codec):
    found = codec.encode(torch.randn(2, 5 * CONFIG.frame_samples) * 0.1)
    assert found.shape == (2, 5, CONFIG.codec.codebooks)
    assert found.min() >= 0 and found.max() < CONFIG.codec.codebook_size


def test_overlap_add_places_frames_a_hop_apart():
    frames = torch.ones(1, 3, 4)
    assert overlap_add(frames, 2).tolist() == [[1, 1, 2, 2, 2, 2, 1, 1]]


def test_mel_bands_cover_all_but_the_edges():
    bank = mel_bank(24_000, 1024, 80)
    assert bank.shape == (80, 513)
    assert (bank.sum(0)[3:-3] > 0).all()


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_recorded_for_one_frame_it_gives_what_its_function_does(prepared, batch):
    state = expected_state = prepared.initial_state(batch)
    for frame in codes(batch, 9).split(1, 1):
        pcm, state = prepared.decode(frame, state)
        expected, *expected_state = prepared._decode(frame, *expected_state)
        assert torch.equal(pcm, expected)
        assert all(map(torch.equal, state, expected_state))


def test_prepared_a_stream_is_the_same_bits_alone_and_in_a_batch(prepared):
    frames = codes(9, 6)
    batched = decode(prepared, frames, [1] * 6)
    for row in range(9):
        assert torch.equal(decode(prepared, frames[row : row + 1], [1] * 6)[0], batched[row])


def test_packed_wren_speaks_nearly_the_same(monkeypatch):
    wren = open_model("wren")
    packed = wren.load_codec()
    monkeypatch.setattr("omni_speak.models.wren.codec.pack", lambda module, exact: None)
    plain = wren.load_codec()
    latents, state = plain.rvq.decode(codes(2, 20)), plain.initial_state(2)
    trunk, rest = state[:-4], state[-4:]
    with torch.inference_mode():
        features, _ = plain.vocoder.trunk(latents, trunk)
        near, _ = packed.vocoder.trunk(latents, trunk)
        pitch, near_pitch = plain.vocoder.hear(features), packed.vocoder.hear(near)
        pcm, _ = plain.vocoder.render(features, pitch, rest)
        near_pcm, _ = packed.vocoder.render(near, pitch, rest)
    # A hundredth of a semitone turns phases in a second: the samples are compared at one pitch.
    assert (pcm - near_pcm).square().mean() < 10**-3.5 * pcm.square().mean()  # 35 dB
    assert (near_pitch / pitch).log2().abs().mean() < 1 / 1200  # a cent
