import pytest
from omni_speak.models.wren.text.front_end import FrontEnd

ALPHABET = [
    " ",
    *"""
    ! $ , . : ; ? ^ aɪ aʊ b d dʒ eɪ f h i iː j k l m n n̩ oʊ p s t tʃ uː v w x z æ ð ŋ ɐ ɑː ɔ ɔɪ
    ɔː ə ɚ ɛ ɜː ɡ ɪ ɹ ɾ ʃ ʊ ʌ ʒ ʔ ˈaɪ ˈaʊ ˈeɪ ˈi ˈiː ˈoʊ ˈuː ˈæ ˈɑː ˈɑ̃ ˈɔ ˈɔɪ ˈɔː ˈɔ̃ ˈɛ ˈɜː ˈɪ
    ˈʊ ˈʌ ˌaɪ ˌaʊ ˌeɪ ˌi ˌiː ˌn̩ ˌoʊ ˌuː ˌæ ˌɐ ˌɑː ˌɔ ˌɔɪ ˌɔː ˌɛ ˌɜː ˌɪ ˌʊ ˌʌ θ ᵻ
    """.split(),
]


@pytest.fixture(scope="session")
def alphabet() -> list[str]:
    return ALPHABET


@pytest.fixture(scope="session")
def front_end() -> FrontEnd:
    front_end = FrontEnd(ALPHABET)
    front_end.warm_up()
    return front_end
