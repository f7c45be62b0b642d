from pathlib import Path

import pytest

from omni_speak.models.wren.config import PHONEMES
from omni_speak.models.wren.text.front_end import FrontEnd
from scripts.train_wren.hard import hard_texts
from scripts.train_wren.texts import Corpus, _bare, held_out

LINES = """\
  1 This line is of the licence.
00001 03 n 01 entity 0 000 | that which is perceived to have its own existence; "{}"
00002 03 n 01 heron 0 000 | a grey wading bird with long legs; "the heron stood very still"
00003 03 n 01 lamp 0 000 | a thing that gives light in the evening; "she lit the lamp"; "a lamp"
"""


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    """Four files as WordNet has them; one of its examples is a held-out sentence."""
    held = held_out()["dictionary"][0]
    for part in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{part}").write_text(LINES.format(held), "latin1")
    return tmp_path


def test_held_out_sentences_are_never_trained_on(wordnet: Path) -> None:
    held = {text for texts in held_out().values() for text in texts}
    corpus = Corpus(wordnet, held, seed=1)
    bare = {_bare(text) for text in held}
    spoken = [_bare(corpus.sentence(index)) for index in range(3000)]
    assert not bare & set(spoken)
    assert not any(_bare(held_out()["dictionary"][0]) in text for text in spoken)


def test_a_sentence_depends_on_its_index_alone(wordnet: Path) -> None:
    corpus, again = Corpus(wordnet, set(), seed=1), Corpus(wordnet, set(), seed=1)
    assert again.sentence(40) == [corpus.sentence(index) for index in range(41)][40]


def test_every_text_can_be_read(wordnet: Path) -> None:
    corpus, front_end = Corpus(wordnet, set(), seed=2), FrontEnd(PHONEMES)
    for text in [*(corpus.sentence(index) for index in range(500)), *hard_texts(200, seed=3)]:
        assert len(front_end(text).tokens) >= 3, text


def test_held_out_are_200_sentences_of_five_kinds() -> None:
    assert [len(set(texts)) for texts in held_out().values()] == [40] * 5
