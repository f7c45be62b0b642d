"""Wren's codec: log-mel → latents → 8 codes per 80 ms, and codes → waveform frame by frame."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from omni_speak.models.layers.graph import Graph
from omni_speak.models.layers.packed import pack
from omni_speak.models.layers.rvq import ResidualVQ
from omni_speak.models.layers.streaming import CausalBlock, CausalConv, CenteredBlock
from omni_speak.models.wren.config import WrenConfig
from omni_speak.models.wren.source import HIGHEST, LOWEST, Source

State = list[Tensor]


class LogMel(nn.Module):
    """pcm [B, N] → log-mel [B, N / hop, bands]; row t is centred on sample (t + 1/2) · hop."""

    window: Tensor
    bank: Tensor

    def __init__(self, sample_rate: int, fft: int, hop: int, bands: int) -> None:
        super().__init__()
        self.fft, self.hop = fft, hop
        self.register_buffer("window", torch.hann_window(fft), persistent=False)
        self.register_buffer("bank", mel_bank(sample_rate, fft, bands), persistent=False)

    def forward(self, pcm: Tensor) -> Tensor:
        left = (self.fft - self.hop) // 2
        padded = F.pad(pcm, (left, self.fft - self.hop - left))
        spectrum = torch.stft(
            padded, self.fft, self.hop, window=self.window, center=False, return_complex=True
        )
        return torch.log((self.bank @ magnitude(spectrum)).clamp(min=1e-5)).transpose(1, 2)


class Encoder(nn.Module):
    """Log-mel [B, 8·T, bands] → latents [B, T, Z]. Sees both ways: for training and cloning."""

    def __init__(self, config: WrenConfig) -> None:
        super().__init__()
        codec = config.codec
        width, entry = codec.width, 192
        self.entry = nn.Conv1d(codec.mel_bands, entry, 3, padding=1)
        stages = int(math.log2(codec.upsample))
        blocks: list[nn.Module] = []
        for stage in range(stages):
            inputs = entry if stage == 0 else width
            blocks += [CenteredBlock(inputs, 2, 7), Halve(inputs, width)]
        self.blocks = nn.Sequential(*blocks, CenteredBlock(width, 2, 5))
        self.norm = nn.LayerNorm(width)
        self.exit = nn.Linear(width, codec.latent)

    def forward(self, mel: Tensor) -> Tensor:
        h = self.entry((mel + 5).transpose(1, 2) / 4).transpose(1, 2)
        out: Tensor = self.exit(self.norm(self.blocks(h)))
        return out


class Halve(nn.Module):
    """Half as many steps. [B, T, C] → [B, T / 2, O]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, 4, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x.transpose(1, 2)).transpose(1, 2)
        return out


class Trunk(nn.Module):
    """Causal: latents [B, T, Z] at the frame rate → features [B, 8·T, C] at the hop rate."""

    def __init__(self, config: WrenConfig, blocks: int) -> None:
        super().__init__()
        codec = config.codec
        self.width, self.upsample = codec.width, codec.upsample
        self.entry = CausalConv(codec.latent, codec.width, 3)
        self.slow = nn.ModuleList(CausalBlock(codec.width, 2, 5) for _ in range(2))
        self.expand = nn.Linear(codec.width, codec.width * codec.upsample)
        self.fast = nn.ModuleList(
            CausalBlock(codec.width, codec.expansion, 7) for _ in range(blocks)
        )
        self.norm = nn.LayerNorm(codec.width)

    def initial_state(self, batch: int) -> State:
        layers = [self.entry, *self.slow, *self.fast]
        return [layer.initial_state(batch) for layer in layers]

    def forward(self, latents: Tensor, state: State) -> tuple[Tensor, State]:
        entry, *rest = state
        h, entry = self.entry(latents, entry)
        after = [entry]
        for block, past in zip(self.slow, rest, strict=False):
            h, past = block(h, past)
            after.append(past)
        h = self.expand(h).view(h.shape[0], -1, self.width)
        for block, past in zip(self.fast, rest[len(self.slow) :], strict=True):
            h, past = block(h, past)
            after.append(past)
        return self.norm(h), after


class Vocoder(nn.Module):
    """Trunk, source and filter: latents → waveform, delayed by `config.codec_delay` samples.

    A frame's spectrum is the source's pulses and breath, their levels and the pulses' phases set
    bin by bin.
    """

    window: Tensor

    def __init__(self, config: WrenConfig) -> None:
        super().__init__()
        codec = config.codec
        self.hop, self.fft, self.bins = codec.hop, codec.window, codec.window // 2 + 1
        self.trunk = Trunk(config, codec.blocks)
        self.source = Source(config.sample_rate, self.fft, self.hop)
        self.pitch = nn.Linear(codec.width, 1)
        self.filter = nn.Linear(codec.width, 3 * self.bins)
        with torch.no_grad():
            self.pitch.bias.fill_(math.log(110.0))
            self.filter.weight.mul_(0.5)
            self.filter.bias.zero_()
            self.filter.bias[: self.bins] = -1.0
            self.filter.bias[2 * self.bins :] = -2.0
        # Hann squared at 75 % overlap sums to 1.5 everywhere: a constant, so no edge is special.
        self.register_buffer("window", torch.hann_window(self.fft) / 1.5, persistent=False)

    def initial_state(self, batch: int) -> State:
        """The trunk's state, the source's three, then what overlap-add has not yet given out
        [B, window - hop]."""
        overlap = self.window.new_zeros(batch, self.fft - self.hop)
        return [*self.trunk.initial_state(batch), *self.source.initial_state(batch), overlap]

    def forward(self, latents: Tensor, state: State) -> tuple[Tensor, State]:
        """latents [B, T, Z] → pcm [B, T · frame_samples] float32, state."""
        *trunk, last, turns, used, overlap = state
        features, trunk = self.trunk(latents, trunk)
        # In eighths of a hertz: the hundredth harmonic would make a rounding error heard.
        pitch = (8 * self.hear(features)).round() / 8
        pcm, rest = self.render(features, pitch, [last, turns, used, overlap])
        return pcm, [*trunk, *rest]

    def hear(self, features: Tensor) -> Tensor:
        """Features [B, S, C] → pitch [B, S] in Hz; means nothing where nothing is voiced."""
        logarithm: Tensor = self.pitch(features).squeeze(-1)
        return logarithm.clamp(math.log(LOWEST), math.log(HIGHEST)).exp()

    def render(self, features: Tensor, pitch: Tensor, state: State) -> tuple[Tensor, State]:
        """Features [B, S, C], pitch [B, S] → pcm [B, S · hop], state: the source's and overlap."""
        *source, overlap = state
        pulses, breath, source = self.source(pitch, source)
        level, phase, noise = self.filter(features).chunk(3, -1)
        voiced = pulses * torch.polar(level.clamp(max=5.5).exp(), phase)
        spectrum = torch.addcmul(voiced, breath, noise.clamp(max=5.5).exp())
        frames = torch.fft.irfft(spectrum, self.fft, dim=-1) * self.window
        summed = overlap_add(frames, self.hop)
        summed = torch.cat(
            [summed[:, : overlap.shape[1]] + overlap, summed[:, overlap.shape[1] :]], 1
        )
        ready = frames.shape[1] * self.hop
        return summed[:, :ready], [*source, summed[:, ready:]]


class Codec(nn.Module):
    """What the runtime holds: codebooks and vocoder; the encoder too where weights have it."""

    def __init__(self, config: WrenConfig) -> None:
        super().__init__()
        codec = config.codec
        self.config = config
        self.rvq = ResidualVQ(codec.codebooks, codec.codebook_size, codec.latent)
        self.vocoder = Vocoder(config)
        self.mel = LogMel(config.sample_rate, 1024, codec.hop, codec.mel_bands)
        self.encoder = Encoder(config)
        self._graph: Graph | None = None

    def prepare(self) -> None:
        """Pack the vocoder for CPUs, and record `decode` of one frame; call it after loading.
        Training afterwards is not seen."""
        self.requires_grad_(False)
        # A logarithm near 5: bfloat16 would round the pitch to half semitones.
        pack(self.vocoder, exact=[self.vocoder.pitch])
        codes = torch.zeros(2, 1, self.config.codec.codebooks, dtype=torch.int64)
        self._graph = Graph(self, self._decode, codes, *self.initial_state(2))

    def initial_state(self, batch: int) -> State:
        """Fresh streams. Every tensor's first dimension is the batch: gather and scatter by row."""
        return self.vocoder.initial_state(batch)

    @torch.inference_mode()
    def decode(self, codes: Tensor, state: State) -> tuple[Tensor, State]:
        """codes [B, T, Q] int64 → pcm [B, T · frame_samples] float32 in -1..1, state."""
        decode = self._decode if self._graph is None or codes.shape[1] != 1 else self._graph
        pcm, *state = decode(codes, *state)
        return pcm, state

    def _decode(self, codes: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        pcm, after = self.vocoder(self.rvq.decode(codes), list(state))
        return pcm.clamp(-1.0, 1.0), *after

    @torch.inference_mode()
    def encode(self, pcm: Tensor) -> Tensor:
        """pcm [B, T · frame_samples] float32 → codes [B, T, Q] int64."""
        return self.rvq.encode(self.encoder(self.mel(pcm)))


def magnitude(spectrum: Tensor, floor: float = 1e-9) -> Tensor:
    """|spectrum| with a gradient at zero; several times as fast on a CPU as `abs`."""
    return torch.view_as_real(spectrum).square().sum(-1).add(floor).sqrt()


def overlap_add(frames: Tensor, hop: int) -> Tensor:
    """frames [B, T, N], hop dividing N → [B, (T - 1) · hop + N]."""
    batch, steps, size = frames.shape
    parts = frames.view(batch, steps, size // hop, hop)
    total = frames.new_zeros(batch, steps + size // hop - 1, hop)
    for part in range(size // hop):
        total[:, part : part + steps] += parts[:, :, part]
    return total.view(batch, -1)


def mel_bank(sample_rate: int, fft: int, bands: int) -> Tensor:
    """Triangular filters on the mel scale, 0 Hz to half the sample rate: [bands, fft / 2 + 1]."""
    top = 2595 * math.log10(1 + sample_rate / 2 / 700)
    edges = [700 * (10 ** (top * i / (bands + 1) / 2595) - 1) for i in range(bands + 2)]
    frequencies = torch.linspace(0, sample_rate / 2, fft // 2 + 1)
    rows = [
        torch.minimum((frequencies - low) / (mid - low), (high - frequencies) / (high - mid))
        for low, mid, high in zip(edges, edges[1:], edges[2:], strict=False)
    ]
    return torch.stack(rows).clamp(min=0)
