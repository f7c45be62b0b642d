"""Words written alike and read apart: "to record" and "a record", read by their neighbours.

Patterns over the sentence in lower case, in which `_` stands for the word itself. The first that
matches decides; where none does, the lexicon's own guess stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_VERB = (
    r"\b(to|will|would|can|could|shall|should|may|might|must|do|does|did|please|i|you|we|they"
    r"|let's|who|cannot|\w+n't|\w+'ll|\w+'d)( (not|never|always|also|often|just|still|\w+ly))* _"
    r"|^_ (the|a|an|my|your|his|her|our|their|it|them|this|that|these|those|all)\b"
)
_NOUN = (
    r"\b(the|a|an|my|your|his|her|its|our|their|this|that|no|some|any|each|every|of|in|on|with"
    r"|for|at|new|world|first|whose)( \w+ly)? _"
)
_PAST = (
    r"yesterday|\bago\b|\blast (night|week|month|year|time|summer|winter|monday|friday)\b|\bonce\b"
)

# (verb, noun)
_PAIRS = {
    "record": ("ɹəkˈɔːɹd", "ɹˈɛkɚd"),
    "object": ("əbdʒˈɛkt", "ˈɑːbdʒəkt"),
    "present": ("pɹizˈɛnt", "pɹˈɛzənt"),
    "desert": ("dəzˈɜːt", "dˈɛzɚt"),
    "refuse": ("ɹəfjˈuːz", "ɹˈɛfjˌuːs"),
    "use": ("jˈuːz", "jˈuːs"),
    "project": ("pɹədʒˈɛkt", "pɹˈɑːdʒˌɛkt"),
    "permit": ("pɚmˈɪt", "pˈɜːmɪt"),
    "produce": ("pɹədˈuːs", "pɹˈoʊdˌuːs"),
    "contract": ("kəntɹˈækt", "kˈɑːntɹˌækt"),
    "protest": ("pɹətˈɛst", "pɹˈoʊtˌɛst"),
    "export": ("ɛkspˈɔːɹt", "ˈɛkspˌɔːɹt"),
}

# The first pattern that matches, and how the word is read then.
_RULES: dict[str, list[tuple[str, str]]] = {
    word: [(_VERB, verb), (_NOUN, noun)] for word, (verb, noun) in _PAIRS.items()
} | {
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


def reading(words: Sequence[str], at: int) -> str | None:
    """The IPA of `words[at]` by its neighbours, None for a word that has no rule."""
    rules = _COMPILED.get(words[at].strip(",;:.!?").lower())
    if rules is None:
        return None
    mark = "_" + words[at][len(words[at].rstrip(",;:.!?")) :]
    sentence = " ".join([*words[:at], mark, *words[at + 1 :]]).lower()
    return next((ipa for pattern, ipa in rules if pattern.search(sentence)), None)
