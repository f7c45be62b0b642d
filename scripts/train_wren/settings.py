"""Every number that decides a training run, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DataSettings:
    """Teacher speech. Durations in seconds unless the name says otherwise."""

    seed: int = 6
    hours: float = 10.0
    noise_scale: float = 0.333
    noise_width: float = 0.333
    plain_share: float = 0.65  # of utterances at length scale 1; the rest log-uniform below
    min_length_scale: float = 0.7
    max_length_scale: float = 1.4
    silence_level: float = 0.01
    lead_in: float = 0.05
    tail: float = 0.12
    max_seconds: float = 13.0


@dataclass(frozen=True)
class MelSettings:
    """Stage 1 of the codec: mel auto-encoder with residual VQ."""

    seed: int = 0
    minutes: float = 12.0
    batch: int = 16
    segment_frames: int = 16
    rate: float = 1e-3
    warm_steps: int = 100  # before quantising: k-means needs a latent that means something


@dataclass(frozen=True)
class WaveSettings:
    """Stage 2 of the codec: codes → waveform, spectral losses, then discriminators."""

    seed: int = 1
    minutes: float = 90.0
    batch: int = 8
    segment_frames: int = 11
    context_frames: int = 3  # decoded for their state only, never in the loss
    discriminator_frames: int = 5
    pitch_weight: float = 3.0
    rate: float = 8e-4
    discriminator_rate: float = 4e-4
    discriminators_from: float = 0.4  # share of the schedule


@dataclass(frozen=True)
class TalkerSettings:
    """Talker, text encoder and depth transformer, together."""

    seed: int = 2
    minutes: float = 155.0
    batch_positions: int = 900
    rate: float = 1.5e-3
    weight_decay: float = 0.05
    dropout: float = 0.05
    depth_share: float = 0.25  # of frames that the depth transformer sees per step
    jitter: float = 0.03  # of frames entered one phoneme early, and as many one late
    code_weights: tuple[float, ...] = (1.0, 0.5, 0.4, 0.3, 0.25, 0.2, 0.2, 0.2)
    corruption: tuple[float, ...] = (0.03, 0.08, 0.15, 0.25, 0.4, 0.5, 0.6, 0.6)
    heavy_share: float = 0.12
    heavy_extra: float = 0.35
    latent_weight: float = 2.0
    joined_from: float = 0.6  # share of the schedule after which utterances are joined
    joined_share: float = 0.6  # of those at the teacher's own rate
    most_joined: int = 4


@dataclass(frozen=True)
class Settings:
    data: DataSettings = field(default_factory=DataSettings)
    mel: MelSettings = field(default_factory=MelSettings)
    wave: WaveSettings = field(default_factory=WaveSettings)
    talker: TalkerSettings = field(default_factory=TalkerSettings)
    # From exported weights: gently, and with joined utterances from the start.
    going_on: TalkerSettings = field(
        default_factory=lambda: TalkerSettings(minutes=75.0, rate=6e-4, joined_from=0.0)
    )
    # Likewise the vocoder.
    better_wave: WaveSettings = field(
        default_factory=lambda: WaveSettings(minutes=70.0, rate=6e-4, discriminators_from=0.1)
    )
    checkpoint_minutes: float = 3.0
