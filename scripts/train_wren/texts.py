"""Sentences to train on: WordNet's examples and glosses, and templates of seven kinds."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

from .templates import (
    ACTS,
    CLAUSES,
    DAYS,
    GOODS,
    JOINTS,
    MONTHS,
    NAMES,
    PLACES,
    QUALITIES,
    SURNAMES,
    TEMPLATES,
    THINGS,
)

HELD_OUT = Path(__file__).parent / "heldout.txt"
ENDS = ".!?"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SHARES = {
    "conversation": 0.09,
    "questions": 0.07,
    "numbers": 0.16,
    "spelled": 0.06,
    "lists": 0.05,
    "long": 0.07,
    "two": 0.04,
    "words": 0.05,
    "gloss": 0.09,
    "joined": 0.12,
    "example": 0.20,
}


def held_out() -> dict[str, list[str]]:
    """The sentences kept for the evaluation, by kind: those below each `# kind`."""
    kinds: dict[str, list[str]] = {}
    for line in HELD_OUT.read_text().splitlines():
        if line.startswith("# "):
            sentences = kinds[line[2:]] = []
        else:
            sentences.append(line)
    return kinds


class Corpus:
    """Deterministic sentences by index: `sentence(i)` never depends on what came before."""

    def __init__(self, wordnet: Path, held_out: set[str], seed: int) -> None:
        rng = random.Random(seed)
        examples, glosses = _wordnet(wordnet)
        self._held = {_bare(text) for text in held_out}
        self._examples = [text for text in examples if _bare(text) not in self._held]
        self._glosses = [text for text in glosses if _bare(text) not in self._held]
        rng.shuffle(self._examples)
        rng.shuffle(self._glosses)
        words = {word for text in glosses + examples for word in re.findall(r"[a-z]{3,}", text)}
        self._words = sorted(words)
        self._seed = seed

    def sentence(self, index: int) -> str:
        """The text of utterance `index`, never one of the held-out sentences."""
        rng = random.Random(index * 7919 + self._seed)
        while True:
            text = self._draw(rng, index)
            if _bare(text) not in self._held:
                return text

    def _draw(self, rng: random.Random, index: int) -> str:
        (kind,) = rng.choices(list(SHARES), list(SHARES.values()))
        first = self._examples[2 * index % len(self._examples)]
        second = self._examples[(2 * index + 1) % len(self._examples)]
        if kind in TEMPLATES:
            text = self._fill(rng.choice(TEMPLATES[kind]), rng)
        elif kind == "two":
            text = " ".join(self._fill(rng.choice(_any_kind(rng)), rng) for _ in range(2))
        elif kind == "long":
            clause = self._fill(rng.choice(CLAUSES), rng)
            other = self._fill(rng.choice(CLAUSES), rng) if rng.random() < 0.5 else first
            text = clause + rng.choice(JOINTS) + _lower(other).rstrip(".!?;:, ")
        elif kind == "words":
            some = rng.choice(self._examples).split()[: rng.randint(1, 3)]
            text = rng.choice(self._words) if rng.random() < 0.5 else " ".join(some)
        elif kind == "gloss":
            text = self._glosses[index % len(self._glosses)]
        elif kind == "joined":
            text = first.rstrip(".!?;:, ") + rng.choice([*JOINTS, ". ", "? "]) + second
        else:
            text = first
        text = text.strip()
        if rng.random() < 0.85:
            text = text[:1].upper() + text[1:]
        return text if text[-1] in ENDS else text + rng.choice("....?!")

    def _fill(self, template: str, rng: random.Random) -> str:
        def digits(count: int) -> str:
            return "".join(str(rng.randint(0, 9)) for _ in range(count))

        def spelled() -> str:
            word = rng.choice(rng.choice([NAMES, SURNAMES, self._words])).upper()
            return rng.choice([", ", ", ", " ", "-"]).join(re.findall("[A-Z]", word)[:9])

        def number() -> int:
            return rng.randint(*rng.choice([(0, 20), (10, 100), (100, 9999)]))

        def money() -> str:
            cents = rng.choice(["", f".{rng.randint(1, 99):02}"])
            whole = rng.choice(["dollars", "pounds", "euros", "cents"])
            amount = f"{number():,}"
            return rng.choice([f"${amount}{cents}", f"{rng.choice('£€$')}{amount}{cents}"] * 2 + [
                f"{amount} {whole}",
                f"{number()} dollars and {rng.randint(2, 99)} cents",
            ])  # fmt: skip

        def time() -> str:
            hour, minute = (
                rng.randint(1, 12),
                rng.choice([0, 5, 10, 15, 30, 45, rng.randint(0, 59)]),
            )
            half = rng.choice([" AM", " PM", " a.m.", " p.m.", "", ""])
            return f"{hour}{half}" if half and rng.random() < 0.3 else f"{hour}:{minute:02}{half}"

        def date() -> str:
            month, day, year = rng.choice(MONTHS), rng.randint(1, 31), rng.randint(1800, 2040)
            return rng.choice([
                f"{month} {day}",
                f"{month} {day}, {year}",
                f"the {_ordinal(day)} of {month}",
                f"{MONTHS.index(month) + 1}/{day}/{year}",
                f"{month} {year}",
            ])  # fmt: skip

        def phone() -> str:
            area, middle, last = f"{rng.randint(2, 9)}{digits(2)}", digits(3), digits(4)
            return rng.choice([
                f"{area}-{middle}-{last}",
                f"({area}) {middle}-{last}",
                f"{middle}-{last}",
                f"1-800-{middle}-{last}",
            ])  # fmt: skip

        fill: dict[str, Callable[[], str]] = {
            "n": lambda: str(number()),
            "n2": lambda: str(rng.randint(2, 99)),
            "big": lambda: f"{rng.randint(1, 999) * 10 ** rng.randint(3, 7):,}",
            "decimal": lambda: f"{rng.randint(0, 99)}.{digits(rng.randint(1, 2))}",
            "fraction": lambda: rng.choice(
                ["1/2 a", "1/3 of a", "3/4 of a", "1/4 of a", "2/3 of a"]
            ),
            "ord": lambda: _ordinal(rng.randint(1, 31)),
            "digits": lambda: " ".join(digits(rng.randint(3, 5))),
            "dg": lambda: digits(1),
            "zip": lambda: " ".join(digits(5)),
            "d": lambda: str(rng.randint(1, 31)),
            "year": lambda: str(rng.randint(1700, 2040)),
            "year0": lambda: str(rng.randint(180, 202) * 10),
            "email": lambda: f"{rng.choice(NAMES)}@{rng.choice(self._words)}.com".lower(),
            "money": money,
            "time": time,
            "date": date,
            "phone": phone,
            "spelled": spelled,
            "month": lambda: rng.choice(MONTHS),
            "day": lambda: rng.choice(DAYS),
            "name": lambda: rng.choice(NAMES),
            "surname": lambda: rng.choice(SURNAMES),
            "thing": lambda: rng.choice(THINGS),
            "goods": lambda: rng.choice(GOODS),
            "place": lambda: rng.choice(PLACES),
            "quality": lambda: rng.choice(QUALITIES),
            "act": lambda: rng.choice(ACTS),
            "l": lambda: rng.choice(LETTERS),
            "word": lambda: rng.choice(self._words),
        }
        return re.sub(r"\{(\w+)\}", lambda slot: fill[slot[1]](), template)


def _any_kind(rng: random.Random) -> list[str]:
    return rng.choice(list(TEMPLATES.values()))


def _ordinal(value: int) -> str:
    ending = "th" if value // 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value}{ending}"


def _lower(text: str) -> str:
    """As the second clause of a sentence; "I" and names keep their capital."""
    first = text.split(maxsplit=1)[0]
    return text if first in NAMES or first.startswith("I") else text[0].lower() + text[1:]


def _wordnet(folder: Path) -> tuple[list[str], list[str]]:
    """WordNet 3.0's data files → (usage examples, short glosses), each sorted and unique."""
    examples: set[str] = set()
    glosses: set[str] = set()
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text("latin1").splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            gloss = line.split("|", 1)[1]
            for quoted in re.findall(r'"([^"]+)"', gloss):
                text = quoted.strip().replace("`", "'").replace("--", ", ")
                if 2 <= len(text) <= 110 and re.fullmatch(r"[A-Za-z0-9 ,.'!?;:\-]+", text):
                    examples.add(text)
            meaning = gloss.split(";")[0].split('"')[0].strip()
            if 10 < len(meaning) < 90 and re.fullmatch(r"[A-Za-z ,'\-]+", meaning):
                glosses.add(meaning)
    return sorted(examples), sorted(glosses)


def _bare(text: str) -> str:
    return re.sub(r"[^a-z0-9 ]", "", text.lower()).strip()
