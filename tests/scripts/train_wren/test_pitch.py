import pytest
import torch

from scripts.train_wren.pitch import track

RATE = 24_000


@pytest.mark.parametrize("hertz", [75.0, 100.0, 147.0, 220.0])
def test_the_pitch_of_a_buzz_is_its_own_not_an_octave_away(hertz: float) -> None:
    turns = torch.arange(RATE) / RATE * hertz
    buzz = sum(torch.cos(2 * torch.pi * k * turns) / k for k in range(1, 20))
    pitch, voiced = track(0.1 * torch.as_tensor(buzz).unsqueeze(0), RATE, 960, 240)
    assert pitch.shape == voiced.shape == (1, 100)
    assert voiced[0, :96].all()
    torch.testing.assert_close(pitch[0, :96], torch.full((96,), hertz), rtol=0.01, atol=0)


def test_noise_and_silence_have_none() -> None:
    noise = torch.randn(1, RATE, generator=torch.Generator().manual_seed(0)) * 0.1
    assert track(noise, RATE, 960, 240)[1].float().mean() < 0.05
    assert not track(torch.zeros(1, RATE), RATE, 960, 240)[1].any()
