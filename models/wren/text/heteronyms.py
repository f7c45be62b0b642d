"""Words written alike and read apart: "to record" and "a record", read by their neighbours.

Patterns over the sentence in lower case, in which `_` stands for the word itself. The first that
matches decides. Words with a history of their own have their readings here; of the many that are
read one way as a verb and another as a noun, as "increase", only the part of speech is told here,
and the lexicon has the readings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_ADVERBS = r"( (not|never|always|also|often|just|still|\w+ly))*"
_DETERMINER = (
    r"the|a|an|my|your|his|her|its|our|their|this|that|no|some|any|each|every|another|whose"
)
_OBJECT = (
    r"the|a|an|my|your|his|her|our|their|it|them|this|that|these|those|all|me|us|him"
    r"|you|\w+sel(f|ves)"
)
_VERB = (
    r"\b(to|will|would|can|could|shall|should|may|might|must|do|does|did|please|i|you|we|they"
    r"|let's|who|cannot|people|men|women|children|police|these|those|\w+n't|\w+'ll|\w+'d)"
    rf"{_ADVERBS} _"
    rf"|((^|[.,;:!?] )_|\b(and|or|then|but) _) ({_OBJECT})\b"
)
_NOUN = (
    rf"\b({_DETERMINER}|of|in|on|with|for|at|by|from|without|new|world|first)( \w+ly)? _"
    r"|\b(many|several|other|one|two|three|four|good|bad) _"
)
_NOUN_PHRASE = (
    rf"{_NOUN}|\b({_DETERMINER}) \w+ _"
    r"|_ (of|in|is|are|was|were|has|had|have|will|can|could|would|may)\b|\w _([.,;:!?]|$)"
)
_PAST = (
    r"yesterday|\bago\b|\blast (night|week|month|year|time|summer|winter|monday|friday)\b|\bonce\b"
)

# The first pattern that matches, and how the word is read then.
_RULES: dict[str, list[tuple[str, str]]] = {
    "present": [(_VERB, "pɹizˈɛnt")],
    "export": [(_VERB, "ɛkspˈɔːɹt"), (r"", "ˈɛkspˌɔːɹt")],
    "protest": [(_VERB, "pɹətˈɛst"), (r"", "pɹˈoʊtˌɛst")],
    "use": [(r"_ cases?\b|\b(is|was|any|much) _", "jˈuːs")],
    "upset": [(r"\b(a|an|the|big|major) _", "ˈʌpsˌɛt"), (r"", "ʌpsˈɛt")],
    "learned": [(r"", "lˈɜːnd")],
    "invalid": [(r"", "ɪnvˈælɪd")],
    "consist": [(r"", "kənsˈɪst")],
    "consists": [(r"", "kənsˈɪsts")],
    "lives": [
        (r"\b(our|their|your|his|her|many|the|of|for|save[sd]?|lost|human|two|three|\w+'s) _",
         "lˈaɪvz"),
        (r"", "lˈɪvz"),
    ],
    "read": [
        (r"\b(have|has|had|having|\w+'ve|was|were|been|being)(n't)?( (not|never|already|just|also"
         r"|\w+ly))* _", "ɹˈɛd"),
        (r"\b(to|will|would|can|could|shall|should|may|might|must|do|does|did|please|a|the|good"
         r"|\w+n't|\w+'ll|let's)( (not|never|always|just|\w+ly))* _", "ɹˈiːd"),
        (r"\b(he|she|it)( \w+ly)? _", "ɹˈɛd"),
        (_PAST, "ɹˈɛd"),
        (r"", "ɹˈiːd"),
    ],
    "lead": [
        (r"_ (pipes?|paints?|poisoning|pencils?|acid|shot|weights?|mines?|bullets?|levels)\b"
         r"|\b(of|contains?|from) _([.,;:!?]|$)|_ (and|or) (zinc|copper|tin|mercury|arsenic)\b",
         "lˈɛd"),
        (r"", "lˈiːd"),
    ],
    "live": [
        (r"_ (music|shows?|stream\w*|broadcasts?|coverage|audience|band|performances?|concerts?"
         r"|events?|television|video|audio|on air)\b"
         r"|\b(is|are|was|were|be|been|go|goes|went|played?|sang|recorded|a|the|this) _|^_ from",
         "lˈaɪv"),
        (r"", "lˈɪv"),
    ],
    "wind": [
        (r"\bto _ (power|damage|speed|energy|and|or)\b", "wˈɪnd"),
        (_NOUN, "wˈɪnd"),
        (rf"{_VERB}|_ (up|down|it|your|through)\b", "wˈaɪnd"),
        (r"", "wˈɪnd"),
    ],
    "tear": [
        (r"\b(a|the|small|big|this) _ in\b|wear and _", "tˈɛɹ"),
        (_NOUN, "tˈɪɹ"),
        (rf"{_VERB}|_ (up|down|apart|off|out|it)\b", "tˈɛɹ"),
        (r"", "tˈɪɹ"),
    ],
    "close": [
        (r"\bto a _|\bthe _ of", "klˈoʊz"),
        (r"\b(very|so|too|quite|is|are|was|were|be|been|how|as|that|this|a|get|got|came|comes?|stay"
         r"|keep|stood|up) _|_ (friends?|relatives?|attention|range|by|enough)\b", "klˈoʊs"),
        (rf"{_VERB}|\w+s _ (at|for|on|early|late|down)\b", "klˈoʊz"),
        (r"", "klˈoʊs"),
    ],
    "content": [
        (r"\b(is|are|was|were|be|been|am|feels?|felt|very|quite|so|not|i'm) _|_ (with|to)\b",
         "kəntˈɛnt"),
        (r"", "kˈɑːntɛnt"),
    ],
    "minute": [
        (r"_ (details?|amounts?|differences?|particles?|traces?|changes?|quantities|cracks?)\b"
         r"|\b(very|extremely|incredibly) _([.,;:!?]|$)", "maɪnˈuːt"),
        (r"", "mˈɪnət"),
    ],
    "bass": [
        (r"_ (fishing|boat|pond)\b|\b(sea|largemouth|striped|grilled|caught|catch|fish for) "
         r"(a |the |\w+ )?_", "bˈæs"),
        (r"", "bˈeɪs"),
    ],
    "wound": [
        (r"\b(a|the|his|her|my|this|bullet|stab|head|open|to) _", "wˈuːnd"),
        (r"_ (up|around|down|its|through|the)\b", "wˈaʊnd"),
        (r"", "wˈuːnd"),
    ],
    "dove": [(r"(?<!\bthe )(?<!\ba )_ (into|in|off|down|under|for|straight)\b", "dˈoʊv")],
    "bow": [
        (r"_ and arrows?|_ ties?\b", "bˈoʊ"),
        (r"\b(took|take|takes) a _|_ (down|before)\b|_ of the (ship|boat)", "bˈaʊ"),
    ],
    "resume": [(r"\b(a|an|my|your|his|her|their|the|updated) _", "ɹˈɛzəmˌeɪ")],
}  # fmt: skip

_COMPILED = {
    word: [(re.compile(pattern), ipa) for pattern, ipa in rules] for word, rules in _RULES.items()
}

# The first pattern that matches, and the parts of speech that the word may be then.
_PARTS_OF_SPEECH = [
    (re.compile(pattern), parts)
    for pattern, parts in [
        (r"\b(due|thanks|according|contrary|prior|similar|addition|subject|related) to _", "NOUN"),
        (_VERB, "VERB"),
        (rf"\b(is|are|was|were|am|be|been|being|\w+'re|\w+'s|i'm){_ADVERBS} _", "ADJ"),
        (r"\b(?!sales|sports|news|arms|savings)\w\w+[^isu']s _", "VERB"),
        (_NOUN_PHRASE, "NOUN ADJ"),
    ]
]
_THIRD_PERSON = re.compile(
    rf"\b(he|she|it|who|which|that|everyone|nobody){_ADVERBS} _|(?<!\bthe )_ ({_OBJECT})\b"
)
_PLURAL = re.compile(rf"{_NOUN}|_ (of|in|are|were|have|will|can)\b|^_")
_NEIGHBOURS = 12  # words to each side that may matter


def reading(words: Sequence[str], at: int) -> str | None:
    """The IPA of `words[at]` by its neighbours, None for a word that has no rule."""
    rules = _COMPILED.get(words[at].strip(",;:.!?").lower())
    if rules is None:
        return None
    sentence = _around(words, at)
    return next((ipa for pattern, ipa in rules if pattern.search(sentence)), None)


def parts_of_speech(words: Sequence[str], at: int) -> Sequence[str]:
    """What `words[at]` is by its neighbours, likeliest first: VERB, NOUN, ADJ; empty if they do not
    tell."""
    sentence = _around(words, at)
    if re.search(r"[^s]s[,;:.!?]*$", words[at].lower()):  # permits, but not progress
        if _THIRD_PERSON.search(sentence):
            return ["VERB"]
        return ["NOUN"] if _PLURAL.search(sentence) else []
    found = (parts for pattern, parts in _PARTS_OF_SPEECH if pattern.search(sentence))
    return next(found, "").split()


def _around(words: Sequence[str], at: int) -> str:
    first = max(0, at - _NEIGHBOURS)
    mark = "_" + words[at][len(words[at].rstrip(",;:.!?")) :]
    near = [*words[first:at], mark, *words[at + 1 : at + 1 + _NEIGHBOURS]]
    return ("- " if first else "") + " ".join(near).lower()
