"""Stage `evaluate`: the held-out sentences as the teacher speaks them, through the codec, and as
Wren speaks them; what Whisper hears of each, what predictors of listeners' ratings say, and how
the speech begins, ends and lasts. Then utterances made to run away."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from omni_speak.models.wren.text.front_end import FrontEnd
from scripts.whisper_base import edits

from . import export
from .clips import pcm_to_float
from .data import Clip, load_clips
from .hard import hard_texts
from .mos import Raters
from .speak import Speaker, Spoken
from .texts import held_out
from .whisper import Judge, words

log = logging.getLogger(__name__)
SAMPLE_RATE = 24_000
LOUD = 0.01  # of full scale: where the teacher's speech was trimmed, too
FRAMES_PER_TOKEN = 0.8  # the teacher's own pace
AT_ONCE = 50  # utterances in one batch
RESAMPLINGS = 10_000


@dataclass(frozen=True)
class Verdict:
    """One sentence, judged. seconds: its length; lead, tail: of that, before the first and after
    the last loud sample. distill, dns: 1 to 5, None where not rated."""

    kind: str
    text: str
    heard: str
    errors: int
    words: int
    seconds: float
    lead: float
    tail: float
    distill: float | None
    dns: float | None


@dataclass(frozen=True)
class Sentence:
    kind: str
    clip: Clip

    @property
    def text(self) -> str:
        return self.clip.record.text


class Bench:
    """The judges, and where their verdicts are kept: `WORK/judged/NAME.jsonl`."""

    def __init__(self, work: Path, rated_every: int) -> None:
        self._judge, self._raters = Judge(work / "whisper"), Raters()
        self._folder, self._every = work / "judged", rated_every
        self._folder.mkdir(exist_ok=True)
        kind_of = {text: kind for kind, texts in held_out().items() for text in texts}
        clips = load_clips(work / "data", "heldout")
        self.sentences = [Sentence(kind_of[clip.record.text], clip) for clip in clips]

    def judge(self, name: str, speak: Callable[[], Iterable[NDArray[np.float32]]]) -> list[Verdict]:
        """`speak` gives pcm for every sentence in order; it is not asked for what is judged."""
        path = self._folder / f"{name}.jsonl"
        if path.exists():
            return [Verdict(**json.loads(line)) for line in path.read_text().splitlines()]
        verdicts = [
            self._verdict(index, sentence, pcm)
            for index, (sentence, pcm) in enumerate(zip(self.sentences, speak(), strict=True))
        ]
        path.write_text("".join(json.dumps(asdict(verdict)) + "\n" for verdict in verdicts))
        return verdicts

    def _verdict(self, index: int, sentence: Sentence, pcm: NDArray[np.float32]) -> Verdict:
        heard, truth = self._judge.transcribe(pcm, SAMPLE_RATE), words(sentence.text)
        rated = index % self._every == 0
        distill, dns = self._raters.rate(pcm, SAMPLE_RATE) if rated else (None, None)
        loud = np.flatnonzero(np.abs(pcm) > LOUD)
        first, last = (int(loud[0]), int(loud[-1])) if len(loud) else (len(pcm), 0)
        return Verdict(
            sentence.kind,
            sentence.text,
            heard,
            edits(truth, words(heard)),
            len(truth),
            len(pcm) / SAMPLE_RATE,
            first / SAMPLE_RATE,
            (len(pcm) - last) / SAMPLE_RATE,
            distill,
            dns,
        )


def evaluate(weights: Path, work: Path, name: str, seeds: int, hard: int, rated_every: int) -> None:
    """The exported weights, spoken by plain torch. `name` tells their verdicts from others'."""
    config, nets, trunk, codec = export.load(weights)
    speaker, front_end = Speaker(config, nets, trunk, codec), FrontEnd(config.phonemes)
    bench = Bench(work, rated_every)

    def through_codec(clip: Clip) -> NDArray[np.float32]:
        codes = codec.encode(pcm_to_float(clip.audio).unsqueeze(0))
        return codec.decode(codes, codec.initial_state(1))[0][0].numpy()

    def synthesis(seed: int) -> Iterable[NDArray[np.float32]]:
        texts = [sentence.text for sentence in bench.sentences]
        for one in _speak(speaker, front_end, texts, seed):
            yield speaker.waveform(one.codes).numpy()

    clips = [sentence.clip for sentence in bench.sentences]
    teacher = bench.judge("teacher", lambda: (pcm_to_float(clip.audio).numpy() for clip in clips))
    _report("teacher", teacher, teacher)
    _report("codec", bench.judge("codec", lambda: map(through_codec, clips)), teacher)
    for seed in range(seeds):
        label = f"{name}-{seed}"
        spoken = bench.judge(label, lambda: synthesis(seed))  # noqa: B023
        _report(label, spoken, teacher)
    if hard:
        texts = hard_texts(hard, seed=11)
        spoken_hard = _speak(speaker, front_end, texts, 11)
        bad = sum(
            _ran_away(one, len(front_end(text).tokens))
            for text, one in zip(texts, spoken_hard, strict=True)
        )
        log.info("%s: %d of %d hard utterances ran away", name, bad, hard)


def _speak(speaker: Speaker, front_end: FrontEnd, texts: list[str], seed: int) -> Iterable[Spoken]:
    generator = torch.Generator().manual_seed(seed)
    for first in range(0, len(texts), AT_ONCE):
        ids = [list(front_end(text).tokens) for text in texts[first : first + AT_ONCE]]
        yield from speaker.speak(ids, generator)


def _ran_away(one: Spoken, tokens: int) -> bool:
    """It never ended, or lasted over twice what its text should."""
    return not one.ended or len(one.codes) > 12 + 2 * FRAMES_PER_TOKEN * tokens


def _report(name: str, verdicts: list[Verdict], teacher: list[Verdict]) -> None:
    kinds = list(dict.fromkeys(verdict.kind for verdict in verdicts))
    by_kind = [_word_errors([v for v in verdicts if v.kind == kind]) for kind in kinds]
    log.info(
        "%s: %.2f %% word errors (%s), %d of %d perfect",
        name,
        _word_errors(verdicts),
        ", ".join(f"{kind} {rate:.2f}" for kind, rate in zip(kinds, by_kind, strict=True)),
        sum(v.errors == 0 for v in verdicts),
        len(verdicts),
    )
    low, high = _difference(verdicts, teacher)
    ratios = np.array([v.seconds / t.seconds for v, t in zip(verdicts, teacher, strict=True)])
    tails = np.array([v.tail for v in verdicts])
    log.info(
        "%s: less the teacher's errors %+.2f to %+.2f (95 %%); length / teacher's %.3f ± %.3f; "
        "before the first loud sample %.0f ms (most %.0f), after the last %.0f ms (most %.0f)",
        name,
        low,
        high,
        ratios.mean(),
        ratios.std(),
        1000 * np.mean([v.lead for v in verdicts]),
        1000 * max(v.lead for v in verdicts),
        1000 * tails.mean(),
        1000 * tails.max(),
    )
    log.info(
        "%s: DistillMOS %.2f, DNSMOS %.2f (%d sentences)",
        name,
        np.mean([v.distill for v in verdicts if v.distill is not None]),
        np.mean([v.dns for v in verdicts if v.dns is not None]),
        sum(v.dns is not None for v in verdicts),
    )


def _word_errors(verdicts: list[Verdict]) -> float:
    """In percent of the words written."""
    return 100 * sum(v.errors for v in verdicts) / sum(v.words for v in verdicts)


def _difference(verdicts: list[Verdict], teacher: list[Verdict]) -> tuple[float, float]:
    """Points of word errors above the teacher's, sentence by sentence: a bootstrap's 95 %."""
    more = np.array([v.errors - t.errors for v, t in zip(verdicts, teacher, strict=True)])
    counts = np.array([v.words for v in verdicts])
    drawn = np.random.default_rng(0).integers(0, len(more), (RESAMPLINGS, len(more)))
    rates = 100 * more[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.percentile(rates, [2.5, 97.5])
    return float(low), float(high)
