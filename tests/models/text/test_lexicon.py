"""Words read as somebody says: lexicon files, `[word](/ipa/)`, and the words that come along."""

import unicodedata
from pathlib import Path

import pytest

from omni_speak.models.wren.config import PHONEMES
from omni_speak.models.wren.text.front_end import FrontEnd
from omni_speak.models.wren.text.ipa import read_ipa, split_ipa
from omni_speak.models.wren.text.lexicon import bundled, read_lexicon
from omni_speak.runtime.errors import InvalidRequest

LEXICON = """\
# ours
Ng	/ˈɪŋ/
k8s	ˌkeɪˈeɪts

St.	ˈstɪlwɔːtə
gif	dʒɪf
Zoë	ˈzəʊi
the	ðæt
"""


ACCENTED = [
    ("Send your résumé, we resume.", "ɹˈɛzəmeɪ", "ɹəzˈuːm"),
    ("An exposé may expose.", "ˌɛkspoʊzˈeɪ", "ɪkspˈoʊz"),
    ("A rosé, a rose.", "ɹoʊzˈeɪ", "ɹˈoʊz"),
]


def write(folder: Path, text: str) -> Path:
    path = folder / "words.tsv"
    path.write_text(text, "utf-8")
    return path


def spoken(text: str, lexicon: Path | None = None) -> list[tuple[str, str]]:
    """Each word of the text as written, and its phonemes."""
    front_end = FrontEnd(PHONEMES, read_lexicon(lexicon) if lexicon else {})
    utterance = front_end(text)
    return [
        (
            word.text,
            "".join(
                PHONEMES[token] for token in utterance.tokens[word.first_token : word.end_token]
            ),
        )
        for word in utterance.words
    ]


@pytest.mark.parametrize(
    ("written", "ipa"),
    [
        ("ˈwɜːd", "wˈɜːd"),  # the stress mark goes before the vowel
        ("ˌɪntəˈnæʃənəl", "ˌɪntənˈæʃənəl"),
        ("ˈstɹɛŋθ", "stɹˈɛŋθ"),
        ("wˈɜːd", "wˈɜːd"),
        ("'t͡ʃɑːrli:", "tʃˈɑːɹliː"),  # ties, other ways to write the same
        ("nuː.ˈjɔːk", "nuːjˈɔːk"),
        ("ˈkəʊt", "kˈoʊt"),  # other accents
        ("ˈbəd ˈhɚd", "bˈʌd hˈɜːd"),  # what only weak syllables have
        ("ˈbʌtn̩", "bˈʌtən"),
        ("ˈɲoʊ", "njˈoʊ"),
        ("bɔ̃", "bɔː"),
    ],
)
def test_ipa_becomes_the_voices(written: str, ipa: str) -> None:
    assert read_ipa(written) == ipa
    assert set(split_ipa(ipa)) <= set(PHONEMES)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("ǃwɜːd", "'ǃ' in 'ǃwɜːd' is no sound of this voice; it has aɪ aʊ b d"),
        ("", "no sound in ''"),
        ("ˈˌwɜːd", "two stress marks"),
        ("wɜːdˈ", "no vowel follows"),
    ],
)
def test_what_is_no_ipa_is_named(written: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_ipa(written)


def test_a_lexicon_decides_how_words_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, LEXICON)
    assert spoken("Ms. Ng's k8s, K8s!", path)[1:] == [
        ("Ng's", "ˈɪŋz"),
        ("k8s", "kˌeɪˈeɪts"),
        ("K8s", "kˌeɪˈeɪts"),
    ]
    # A word with capitals stands for itself alone.
    assert spoken("ng", path) == spoken("ng") != [("ng", "ˈɪŋ")]
    # No rule touches them, nor the words of addresses.
    assert spoken("St. GIF, Zoe; Zoë", path) == [
        ("St.", "stˈɪlwɔːtə"),
        ("GIF", "dʒɪf"),
        ("Zoe", "zˈoʊi"),
        ("Zoë", "zˈoʊi"),
    ]
    assert "dʒɪf" in spoken("gif.example.com", path)[0][1]
    assert spoken("The the", path) == [("The", "ðæt"), ("the", "ðæt")]


def test_the_article_before_a_word_of_the_lexicon_fits_it(tmp_path: Path) -> None:
    path = write(tmp_path, "Ng\tˈɪŋ\nUnesco\tjuːˈnɛskoʊ\n")
    assert spoken("the Ng", path)[0] == ("the", "ðiː")
    assert spoken("the Unesco", path)[0] == ("the", "ðə")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("Ng ɪŋ", "line 3: no tab in 'Ng ɪŋ'"),
        ("Ng\tǃɪŋ", "line 3: 'ǃ' in 'ǃɪŋ' is no sound of this voice; it has aɪ aʊ"),
        ("Ng\t", "line 3: there is no sound"),
        ("New York\tˈnuː", "line 3: 'New York' is not one word"),
        ("?!\tˈnuː", r"line 3: '\?!' is not one word"),
        ("Lee\tˈliː", "line 3: 'Lee' is on line 2 already"),
    ],
)
def test_a_wrong_line_is_refused_by_its_number(tmp_path: Path, line: str, says: str) -> None:
    path = write(tmp_path, f"# names\nLee\tˈliː\n{line}\n")
    with pytest.raises(InvalidRequest, match=says) as caught:
        read_lexicon(path)
    assert str(path) in str(caught.value)
    assert caught.value.param == "lexicon"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none\.tsv: No such file"):
        read_lexicon(tmp_path / "none.tsv")
    (tmp_path / "latin1.tsv").write_bytes(b"caf\xe9\tx")
    with pytest.raises(InvalidRequest, match=r"latin1\.tsv: byte 3 is not UTF-8"):
        read_lexicon(tmp_path / "latin1.tsv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a [word](/ˈwɜːd/).", [("a", "ɐ"), ("word", "wˈɜːd")]),
        ("**[Ng](/ˈɪŋ/)**s", [("Ng", "ˈɪŋ"), ("s", "ˈɛs")]),
        ("[New York](/ˈnuː ˈjɔːk/)", [("New York", "nˈuː jˈɔːk")]),
        ("[$5](/ˈfaɪvɚ/)", [("$5", "fˈaɪvɚ")]),
        ("the [b](/ˈɪŋ/)", [("the", "ðiː"), ("b", "ˈɪŋ")]),
        ("[x](/ðæt/)[y](/ðɪs/)", [("x", "ðæt"), ("y", "ðɪs")]),
        # What is no IPA is a link, and its text is read.
        ("[red](/docs/)", [("red", "ɹˈɛd")]),
        ("[red](/lib/)", [("red", "ɹˈɛd")]),
        ("[red](/ˈwɜǃd/)", [("red", "ɹˈɛd")]),
        ("[red](//)", [("red", "ɹˈɛd")]),
        ("[red](/ˈ/)", [("red", "ɹˈɛd")]),
    ],
)
def test_ipa_in_the_text(text: str, words: list[tuple[str, str]]) -> None:
    assert spoken(text) == words


def test_ipa_in_the_text_stands_above_the_lexicon(tmp_path: Path) -> None:
    path = write(tmp_path, "York\tˈjɑːk\nNew\tˈnɑː\n")
    assert spoken("[New York](/ˈnuː/) York", path) == [("New York", "nˈuː"), ("York", "jˈɑːk")]


@pytest.mark.parametrize(
    ("text", "ipa"),
    [
        ("https", "ˌeɪtʃtˌiːtˌiːpˌiːˈɛs"),
        ("a PhD", "ɐ pˌiːˌeɪtʃdˈiː"),
        ("IKEA's", "aɪkˈiːəz"),
        ("JSON", "dʒˈeɪsɑːn"),
        ("Dr. Nguyen", "dˈɑːktɚ wˈɪn"),
        ("Nguyễn", "wˈɪn"),
        ("Siobhán", "ʃɪvˈɔːn"),
        ("JOAQUÍN", "wɑːkˈiːn"),
        ("St", "sˈeɪnt"),
        ("St Ives, Elm St", "sˈeɪnt ˈaɪvz ˈɛlm stɹˈiːt"),
        ("Beyoncé", "biˈɑːnseɪ"),
        ("Worcester", "wˈʊstɚ"),
        ("jalapeño", "hˌɑːləpˈeɪnjoʊ"),
        ("Los Angeles", "lˈoʊz ˈændʒələs"),
        ("kubernetes.io", "kˌuːbɚnˈɛɾiːz dˈɑːt ˌaɪˈoʊ"),
    ],
)
def test_words_that_letters_do_not_tell(text: str, ipa: str) -> None:
    assert " ".join(said for _, said in spoken(text)) == ipa


def test_the_bundled_words_are_in_the_alphabet_of_the_voice() -> None:
    for word, ipa in bundled().items():
        assert set(split_ipa(ipa)) <= {*PHONEMES}, word


@pytest.mark.parametrize(("text", "accented", "plain"), ACCENTED)
def test_an_accent_tells_words_apart(text: str, accented: str, plain: str) -> None:
    readings = [ipa for _, ipa in spoken(text)]
    assert accented in readings
    assert plain in readings


@pytest.mark.parametrize(
    ("written", "ipa"),
    [
        ("touché", "tuːʃˈeɪ"),
        ("TOUCHÉ", "tuːʃˈeɪ"),
        ("résumés", "ɹˈɛzəmeɪz"),
        ("señor’s", "seɪnjˈɔːɹz"),
        ("piñata", "piːnjˈɑːtə"),
        ("garçon", "ɡɑːɹsˈoʊn"),
        ("fête", "fˈɛt"),
        ("München", "mˈʊnʃən"),
        ("Zürich", "zˈʊɹɪk"),
        ("vis-à-vis", "vˌiːzəvˈiː"),
        ("mañana", "mənjˈɑːnə"),
        ("Čapek", "tʃˈɑːpɛk"),
        ("café", "kæfˈeɪ"),
        ("naïve", "nɑːˈiːv"),
        ("São", "sˈaʊ"),
    ],
)
def test_accented_words(written: str, ipa: str) -> None:
    text = f"so **{written}**, yes"
    assert spoken(text)[1] == (written, ipa)
    decomposed = unicodedata.normalize("NFD", text)
    assert spoken(decomposed)[1][1] == ipa


def test_an_accented_word_is_read_as_the_users_lexicon_says(tmp_path: Path) -> None:
    lexicon = write(tmp_path, "résumé\tˈɹɛsjuːm\n")
    assert spoken("my résumé", lexicon)[-1] == ("résumé", "ɹˈɛsjuːm")
    assert spoken("my [résumé](/ˈkæt/)", lexicon)[-1] == ("résumé", "kˈæt")
