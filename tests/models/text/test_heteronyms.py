"""Words written alike: a pair of sentences for each reading."""

import pytest

from omni_speak.models.wren.config import PHONEMES
from omni_speak.models.wren.text.g2p import words_to_ipa
from omni_speak.models.wren.text.heteronyms import _RULES
from omni_speak.models.wren.text.ipa import split_ipa

SENTENCES = [
    ("I have never read it.", "read", "ɹˈɛd"),
    ("Please read it aloud.", "read", "ɹˈiːd"),
    ("She read the letter.", "read", "ɹˈɛd"),
    ("I read it every day.", "read", "ɹˈiːd"),
    ("I read it last night.", "read", "ɹˈɛd"),
    ("Old lead pipes are toxic.", "lead", "lˈɛd"),
    ("They lead the way.", "lead", "lˈiːd"),
    ("We live in Paris.", "live", "lˈɪv"),
    ("We heard live music.", "live", "lˈaɪv"),
    ("The show is live.", "live", "lˈaɪv"),
    ("The wind is strong.", "wind", "wˈɪnd"),
    ("I will wind the clock.", "wind", "wˈaɪnd"),
    ("Do not tear the paper.", "tear", "tˈɛɹ"),
    ("A tear rolled down.", "tear", "tˈɪɹ"),
    ("Please close the door.", "close", "klˈoʊz"),
    ("She is a close friend.", "close", "klˈoʊs"),
    ("The shops close at nine.", "close", "klˈoʊz"),
    ("We use it daily.", "use", "jˈuːz"),
    ("It is of no use.", "use", "jˈuːs"),
    ("I will record the call.", "record", "ɹəkˈɔːɹd"),
    ("It broke the record.", "record", "ɹˈɛkɚd"),
    ("They object to it.", "object", "əbdʒˈɛkt"),
    ("What is that object?", "object", "ˈɑːbdʒəkt"),
    ("She will present it.", "present", "pɹizˈɛnt"),
    ("He bought a present.", "present", "pɹˈɛzənt"),
    ("He was content with it.", "content", "kəntˈɛnt"),
    ("The content is new.", "content", "kˈɑːntɛnt"),
    ("Wait a minute.", "minute", "mˈɪnət"),
    ("It has minute details.", "minute", "maɪnˈuːt"),
    ("He plays bass guitar.", "bass", "bˈeɪs"),
    ("They caught a bass.", "bass", "bˈæs"),
    ("The desert is dry.", "desert", "dˈɛzɚt"),
    ("Do not desert us.", "desert", "dəzˈɜːt"),
    ("I refuse to go.", "refuse", "ɹəfjˈuːz"),
    ("They burn the refuse.", "refuse", "ɹˈɛfjˌuːs"),
    ("She wound up the toy.", "wound", "wˈaʊnd"),
    ("The wound has healed.", "wound", "wˈuːnd"),
    ("He dove into the pool.", "dove", "dˈoʊv"),
    ("The dove flew off.", "dove", "dˈʌv"),
    ("They took a bow.", "bow", "bˈaʊ"),
    ("A bow and arrow.", "bow", "bˈoʊ"),
    ("Send your resume today.", "resume", "ɹˈɛzəmˌeɪ"),
    ("We resume at noon.", "resume", "ɹəzˈuːm"),
    ("They project a loss.", "project", "pɹədʒˈɛkt"),
    ("The project is late.", "project", "pɹˈɑːdʒˌɛkt"),
    ("We do not permit it.", "permit", "pɚmˈɪt"),
    ("You need a permit.", "permit", "pˈɜːmɪt"),
    ("Prices increase daily.", "increase", "ɪnkɹˈiːs"),
    ("A big increase in cost.", "increase", "ˈɪnkɹˌiːs"),
    ("Increase the volume.", "increase", "ɪnkɹˈiːs"),
    ("They rebel against it.", "rebel", "ɹəbˈɛl"),
    ("He is a rebel.", "rebel", "ɹˈɛbəl"),
    ("I suspect him.", "suspect", "səspˈɛkt"),
    ("The suspect fled.", "suspect", "sˈʌspˌɛkt"),
    ("It is subject to change.", "subject", "sˈʌbdʒɛkt"),
    ("Do not subject us to it.", "subject", "səbdʒˈɛkt"),
    ("Excuse me.", "excuse", "ɪkskjˈuːz"),
    ("A bad excuse.", "excuse", "ɪkskjˈuːs"),
    ("Separate rooms.", "separate", "sˈɛpəɹət"),
    ("Mix and separate the eggs.", "separate", "sˈɛpɚˌeɪt"),
    ("They are separate.", "separate", "sˈɛpəɹət"),
    ("We estimate the cost.", "estimate", "ˈɛstəmˌeɪt"),
    ("An estimate of it.", "estimate", "ˈɛstəmət"),
    ("I graduate in May.", "graduate", "ɡɹˈædʒʊˌeɪt"),
    ("It is a graduate school.", "graduate", "ɡɹˈædʒəwət"),
    ("These conflict with it.", "conflict", "kənflˈɪkt"),
    ("The conflict ended.", "conflict", "kˈɑːnflˌɪkt"),
    ("We progress slowly.", "progress", "pɹəɡɹˈɛs"),
    ("Progress is slow.", "progress", "pɹˈɑːɡɹəs"),
    ("It is perfect.", "perfect", "pˈɜːfəkt"),
    ("We must perfect it.", "perfect", "pɚfˈɛkt"),
    ("Drug abuse.", "abuse", "əbjˈuːs"),
    ("They abuse it.", "abuse", "əbjˈuːz"),
    ("House the homeless.", "house", "hˈaʊz"),
    ("The house is big.", "house", "hˈaʊs"),
    ("The law permits the use.", "permits", "pɚmˈɪts"),
    ("Two permits are here.", "permits", "pˈɜːmɪts"),
    ("It consists of parts.", "consists", "kənsˈɪsts"),
    ("She lives in Rome.", "lives", "lˈɪvz"),
    ("They lost their lives.", "lives", "lˈaɪvz"),
    ("I was upset.", "upset", "ʌpsˈɛt"),
    ("An invalid password.", "invalid", "ɪnvˈælɪd"),
    ("The roads wind through hills.", "wind", "wˈaɪnd"),
    ("They attribute it to luck.", "attribute", "ətɹˈɪbjˌuːt"),
    ("It can be learned.", "learned", "lˈɜːnd"),
    ("We convert the file.", "convert", "kənvˈɜːt"),
    ("Please insert the card.", "insert", "ɪnsˈɜːt"),
]


@pytest.mark.parametrize(("sentence", "word", "ipa"), SENTENCES)
def test_the_sentence_decides(sentence: str, word: str, ipa: str) -> None:
    words = [written.strip(".?").lower() for written in sentence.split()]
    assert words_to_ipa(sentence)[words.index(word)] == ipa


def test_every_reading_is_in_the_alphabet_of_the_voice() -> None:
    for rules in _RULES.values():
        for _, ipa in rules:
            assert set(split_ipa(ipa)) <= set(PHONEMES), ipa
