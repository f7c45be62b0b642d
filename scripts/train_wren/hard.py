"""Texts made to run away: very short, very long, repeats, nonsense, codes, capitals, names."""

from __future__ import annotations

import random

from .templates import CONVERSATION

SHORT = ["Yes.", "No.", "Oh.", "A.", "I", "Hm.", "Go!", "Why?", "1", "Ah, no."]
REPEATED = ["no", "very", "go", "four", "ha", "the", "buffalo", "la"]
SYLLABLES = ["ba", "gloo", "tri", "sna", "quo", "ving", "zeth", "lop", "mar", "ik", "ump", "ost"]
FOREIGN = (
    "Nguyễn Thị Minh Khai,Søren Kierkegaard,Zbigniew Brzeziński,Xóchitl Gálvez,Þórður Guðmundsson,"
    "Władysław Szpilman,Tchaikovsky,Qin Shi Huang,Ngũgĩ wa Thiong'o,Dvořák,Saoirse Ní Bhraonáin"
).split(",")


def hard_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    plain = [text for text in CONVERSATION if "{" not in text]

    def word(most: int) -> str:
        return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, most)))

    kinds = [
        lambda: rng.choice(SHORT),
        lambda: ", ".join([rng.choice(REPEATED)] * rng.randint(3, 40)) + ".",
        lambda: " ".join([rng.choice(REPEATED)] * rng.randint(3, 40)),
        lambda: " ".join(word(4) for _ in range(rng.randint(1, 12))) + ".",
        lambda: word(100)[:300],
        lambda: " ".join(str(rng.randint(0, 9)) for _ in range(rng.randint(2, 30))),
        lambda: " ".join(rng.choice(plain) for _ in range(rng.randint(4, 10))),
        lambda: " ".join(rng.sample(plain, 3)).upper(),
        lambda: ", ".join(rng.sample(FOREIGN, rng.randint(1, 4))) + "!",
        lambda: "".join(rng.choice(".,;:!?-…") for _ in range(20)) + " So." + "!" * 30,
    ]
    return [kinds[index % len(kinds)]() for index in range(count)]
