"""Written English → the words to say, each knowing the characters it was written with.

One table, `SECTIONS`, read top to bottom at every place of the text: a pattern, and how its groups
are said. What no rule knows is skipped. The result is words and pauses, ready for the G2P:

    "It costs $8.75 million." → It · costs · eight point seven five million dollars · .
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from omni_speak.models.wren.text import numbers, saying
from omni_speak.models.wren.text.ipa import read_ipa
from omni_speak.models.wren.text.lexicon import Lexicon, accented_words, look_up
from omni_speak.models.wren.text.markup import plain_text
from omni_speak.models.wren.text.saying import always, as_written, silent
from omni_speak.models.wren.text.tables import (
    ABBREVIATIONS,
    AFTER_NAMES,
    BEFORE_NUMBERS,
    COUNTRIES,
    CURRENCIES,
    CURRENCY_CODES,
    DAYS,
    PER,
    SYMBOLS,
    TITLES,
    UNITS,
    WORDS,
)

PAUSES = ",;:.!?"  # all the voice knows, weakest first: of several in a row the strongest is kept


@dataclass(frozen=True, slots=True)
class Span:
    """What is said for `text[start:end]`: one or more words, or a pause."""

    spoken: str
    start: int
    end: int

    @property
    def is_pause(self) -> bool:
        return self.spoken in PAUSES


def normalise(text: str, lexicon: Lexicon = MappingProxyType({})) -> list[Span]:
    """The words and pauses of a text, in order; empty if there is nothing to say.

    A word that `lexicon` has, or that is written as `[word](/ipa/)`, is said as that tells, and no
    rule touches it: its span's `spoken` is the IPA between slashes.
    """
    if not any(char.isalnum() for char in text):
        return []
    plain, offsets = plain_text(text)
    spans: list[Span] = []
    at = 0
    for start, end, ipa in _pronounced(text, plain, offsets, lexicon):
        if start < at:  # a word of a lexicon inside of what is written [so](/ipa/), or of another
            continue
        _scan(spans, plain, offsets, at, start)
        spoken = " ".join(f"/{word}/" for word in ipa.split())
        add_span(spans, Span(spoken, offsets[start], offsets[end - 1] + 1))
        at = end
    _scan(spans, plain, offsets, at, len(plain))
    return spans


def _scan(spans: list[Span], plain: str, offsets: Sequence[int], start: int, end: int) -> None:
    for match in SCANNER.finditer(plain, start, end):
        rule = match.lastindex or 0
        say, groups = SAY[rule]
        spoken = say(*match.groups()[rule : rule + groups])
        if spoken:
            first = match.end() - len(match[0].lstrip())
            last = match.start() + len(match[0].rstrip()) - 1
            add_span(spans, Span(spoken, offsets[first], offsets[last] + 1))


def _pronounced(
    text: str, plain: str, offsets: Sequence[int], lexicon: Lexicon
) -> list[tuple[int, int, str]]:
    """Where in the plain text words stand whose IPA is given, in order, and that IPA."""
    found = []
    for match in INLINE_IPA.finditer(text):
        ipa = _inline_ipa(match[2])
        start, end = (bisect_left(offsets, offset) for offset in match.span(1))
        if ipa and start < end:
            found.append((start, end, ipa))
    for match in CHUNK.finditer(plain) if lexicon else ():
        for word in dict.fromkeys((match[0], match[0].rstrip(PAUSES + "'"))):
            ipa = look_up(word, [lexicon])
            if ipa is not None:
                found.append((match.start(), match.start() + len(word), ipa))
                break
    for first, last, ipa in accented_words(text):
        found.append((bisect_left(offsets, first), bisect_left(offsets, last), ipa))
    return sorted(found, key=lambda given: given[0])


def _inline_ipa(written: str) -> str | None:
    """The IPA of `[word](/written/)`, None for what is none: `/docs/` is a link. The text of a link
    is read, and so is the word whose IPA is wrong."""
    if written.isascii() and "'" not in written:
        return None
    try:
        return read_ipa(written)
    except ValueError:
        return None


def add_span(spans: list[Span], span: Span) -> None:
    """Of several pauses in a row the strongest stays, and of none before the first word. What one
    character brings, as the ² of x², is one span; so is what something owns, as in Henry VIII's."""
    last = spans[-1] if spans else None
    if last and not last.is_pause and span.spoken == "'s":
        spans[-1] = Span(f"{last.spoken}'s", last.start, span.end)
    elif last is None or not (span.is_pause or span.start < last.end):
        if not span.is_pause:
            spans.append(span)
    elif span.is_pause:
        if not last.is_pause:
            if span.start >= last.end:
                spans.append(span)
        elif PAUSES.index(span.spoken) > PAUSES.index(last.spoken):
            spans[-1] = span
    elif last.is_pause:
        spans[-1] = span
    else:
        spoken = f"{last.spoken} {span.spoken}"
        spans[-1] = Span(spoken, last.start, max(last.end, span.end))


def spoken_text(spans: Sequence[Span]) -> str:
    """The sentence as the G2P reads it."""
    return "".join(span.spoken if span.is_pause else f" {span.spoken}" for span in spans).lstrip()


# --- how it is written ----------------------------------------------------------------------

INLINE_IPA = re.compile(r"\[([^\[\]\n]{1,300})\]\(/([^/()\n]{1,300})/\)")
CHUNK = re.compile(r"[^\s\"'()\[\]{}–—|][^\s\"()\[\]{}–—|]*")


def any_of(words: Iterable[str]) -> str:
    """A group that matches any of the words, the longest first."""
    return "(" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"


START = r"(?<![\w.,])"
END = r"(?!\w)"
SIGN = r"(?:(?<![\w.)%°])([-+]))?(?<![\w.])"
WHOLE = r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)"
NUMBER = rf"({WHOLE}(?:\.\d++)?|\.\d++)"
SCALE = r"(?:[ -]?(thousand|million|billion|trillion|[kKmMbBtT]n?)(?![A-Za-z]))?"
CURRENCY = "[" + "".join(symbol for symbol in CURRENCIES if len(symbol) == 1) + "]"
SYMBOL = f"({CURRENCY})"
MONTH_NAME = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b"
)
MONTH = f"({MONTH_NAME})"
DAY_NAME = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)(?:[a-z]{0,5}day)?\b"
ZONE = r"(?:Eastern|Central|Mountain|Pacific)\b"
# After "p.m." a full stop goes with it, unless a new sentence begins.
HALF = rf"([AaPp])(?:[Mm]|\.[Mm](?:\.(?! (?!{MONTH_NAME}|{DAY_NAME}|{ZONE})[A-Z][a-z]))?)(?!\w)"
YEAR = r"(?:,? (\d{4})(?!\w))?"
MONTH_NUMBER = r"(0?[1-9]|1[0-2])"
DAY = r"(0?[1-9]|[12]\d|3[01])"
DAY_OR_DAYS = rf"{DAY}(?:st|nd|rd|th)?(?: ?[-–] ?{DAY}(?:st|nd|rd|th)?)?"
AFTER_A = r"(?:(?<=\b[Aa] )|(?<=\b[Aa]n ))"
PER_UNIT = rf"/{any_of(PER)}"
DOMAIN = r"(?:com|org|net|io|ai|dev|edu|gov|uk|de|fr|eu|ca|au|nl|ch|jp|nz|app|info|xyz|tv)(?![\w-])"
REGNAL = (
    r"(Henry|Louis|George|Edward|Charles|Elizabeth|James|William|Richard|Philip|Paul|Benedict"
    r"|Pius|Napoleon|Catherine|Peter|Alexander|Nicholas|Frederick|Ivan|Leo|Francis|Ramses|Mary)"
)
NUMBERED = (
    r"(Chapter|Part|Act|Scene|Book|Volume|Section|Type|Phase|Class|Level|War|Appendix|Figure"
    r"|Table|Bowl|Article|Unit|Stage|Episode|Tier|Title|Grade)"
)
ROMAN = r"((?=[IVXL]{2}|[IVX])(?:XL|L?X{0,3})(?:IX|IV|V?I{0,3}))"
ROMAN_OVER_1 = r"(?!I\b)((?=[IVX])X{0,3}(?:IX|IV|V?I{0,3}))"
ROMAN_IN_LETTERS = r"(I{2,3}|IV|VI{1,3}|IX|X{1,3}(?:I[XV]|VI{0,3}|I{1,3}))"
IV_DRIP = r"IV (?:drips?|fluids?|lines?|bags?|poles?|therapy|infusions?|antibiotics)\b"
DECIMAL_COMMA = r"(\d{1,3}(?:\.\d{3}){0,4},\d{1,2})(?!\d|[.,]\d)"
STREET_NAME = (
    r"(?:\d{1,3}(?:st|nd|rd|th)|[A-Z][a-z]+ (?:St|Ave|Blvd|Rd|Dr|Street|Avenue|Road|Drive))\b"
)
BOOK = (
    r"(Genesis|Exodus|Leviticus|Deuteronomy|Joshua|Samuel|Kings|Job|Psalms?|Proverbs|Isaiah"
    r"|Jeremiah|Ezekiel|Daniel|Matthew|Mark|Luke|John|Acts|Romans|Corinthians|Galatians|Ephesians"
    r"|Philippians|Timothy|Hebrews|James|Peter|Revelation)"
)
# What is written in a formula before a figure and might be read as a word: the SO of H2SO4.
FORMULA = (
    r"((?:Al|Ag|Ba|Ca|Cr|Cu|Fe|Hg|Li|Mg|Mn|Na|Ni|Pb|Si|Ti|Zn|[BCFHIKNOPSUV]){1,5}(?:Cl|Br|[FHO]))"
)
MANY = r"(?:people|users|parameters|tokens|dollars|views|downloads|years|customers|rows|requests)\b"
SOFTWARE = (
    r"[Vv]ersion|[Rr]elease|Python|Node|Java|PHP|Ruby|Ubuntu|Debian|Android|iOS|macOS|Linux|CUDA"
)

Rule = tuple[str, Callable[..., str]]

# What the rules of a section may begin with, and its rules. They are compiled into one pattern, so
# they have no named groups and no back references. No input is slow: runs are possessive or
# bounded.
SECTIONS: list[tuple[str, list[Rule]]] = [
    # addresses
    (r"[\w./~+:-]", [
        (r"((?<![\w:])(?=[\w:]{0,4}:)(?=[\w:]{0,39}::|(?:\w{1,4}:){7})(?=[\w:]{0,39}\d)"
         r"(?:[\da-fA-F]{0,4}:){2,7}[\da-fA-F]{0,4})(?![\w:])", saying.say_ipv6),
        (r"((?<![\w:-])(?:[\da-fA-F]{2}[:-]){5}[\da-fA-F]{2})(?![\w:-])", saying.say_mac),
        (r"((?:mailto:)?(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})",
         saying.say_address),
        (r"((?:https?|ftp|wss?)://[^\s<>\"()]{0,2000}[\w/])", saying.say_address),
        (r"((?<![\w.-])www\.[^\s<>\"()]{0,2000}[\w/])", saying.say_address),
        (rf"((?<![\w.-])(?:[A-Za-z0-9-]{{1,63}}\.){{1,8}}{DOMAIN}"
         r"(?::\d{2,5}(?!\d))?(?:/[^\s<>\"()]{0,2000}[\w/])?)", saying.say_address),
        (r"((?<![\w.,])(?:localhost|\d{1,3}(?:\.\d{1,3}){3})(?!\w|\.\w)"
         r"(?::\d{2,5}(?!\d))?(?:/[^\s<>\"()]{0,2000}[\w/])?)", saying.say_address),
        (r"((?<!\S)(?:[~.]{1,2}(?:/[\w.-]{0,63}\w){1,32}|(?:/[\w.-]{0,63}\w){2,32}))",
         saying.say_address),
        (r"((?<![^\s(])[A-Za-z]:(?:\\[\w.-]{0,63}\w){1,32})", saying.say_address),
        (r"((?<![^\s(])(?:[\w-][\w.-]{0,63}/){1,32}[\w-]{1,64}\.[A-Za-z]\w{0,8})(?![\w/])",
         saying.say_address),
    ]),
    # numbers and what they count
    (rf"['(+-]?(?:[A-Z]{{1,2}}\$)?{CURRENCY}?[-.]?\d|{CURRENCY} ", [
        (r"((?<!\w)\+(?=(?:[ ().-]{0,3}\d){7})"
         r"(?:\d{7,15}|\d{1,3}(?:[ .-]?\(\d{1,4}\))?(?:[ .-]?\d{1,8}(?!\d)){1,6}))" + END,
         saying.say_phone),
        (rf"{START}((?:1[-. ])?(?:\(\d{{3}}\) ?|\d{{3}}[-. ])\d{{3}}[-.]\d{{4}})(?![\w-])",
         saying.say_phone),
        (rf"{START}(\d{{3}}-\d{{4}})(?![\w-])", saying.say_phone),
        (rf"{START}(0\d{{2,4}}(?:[ -]\d{{3,6}}){{1,3}})(?![\w-])", saying.say_phone),
        (rf"{START}(\d{{4}}(?:[ -]\d{{4}}){{2,4}})(?![\w-])", saying.say_phone),
        (rf"{START}((?:1-)?8\d\d)-(?=[A-Z])", saying.say_toll_free),
        (rf"{START}(\d{{4}})[-/](0[1-9]|1[0-2])[-/]{DAY}T(\d\d):(\d\d)(?::\d\d(?:\.\d{{1,9}})?)?"
         rf"(Z)?{END}", saying.say_iso_time),
        (rf"{START}(\d{{4}})[-/](0[1-9]|1[0-2])[-/]{DAY}{END}", saying.say_iso_date),
        (rf"{START}((?:19|20)\d\d)-(0[1-9])(?![\w-])", saying.say_iso_month),
        (rf"{START}{MONTH_NUMBER}/((?:19|20)\d\d)(?![\w/])", saying.say_month_of_year),
        (rf"{START}{MONTH_NUMBER}/{DAY}/(\d{{4}}|\d\d){END}", saying.say_month_first),
        (rf"{START}{DAY}/{MONTH_NUMBER}/(\d{{4}}|\d\d){END}", saying.say_day_first),
        (rf"{START}{DAY}\.(0[1-9]|1[0-2])\.(\d{{4}}){END}", saying.say_day_first),
        (rf"{START}{MONTH_NUMBER}-{DAY}-(\d{{4}}){END}", saying.say_month_first),
        (rf"{START}{DAY}-{MONTH_NUMBER}-(\d{{4}}){END}", saying.say_day_first),
        (rf"{START}(\d{{1,7}}(?:-\d{{1,7}}){{2,5}})(?![\w-])", saying.say_phone),
        (rf"{START}((?<=[Tt]he ))?{DAY_OR_DAYS}(?: of)? {MONTH}{YEAR}", saying.say_day_month),
        (rf"{START}([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d(?:\.\d{{1,6}})?))?"
         rf"(?: ?{HALF}|h\b|(?![\w:]))", saying.say_time),
        (rf"{START}(\d{{1,2}})\.([0-5]\d) ?{HALF}", saying.say_clock),
        (rf"{START}([01]?\d|2[0-4])h([0-5]\d){END}", saying.say_clock),
        (rf"{START}(\d{{1,2}}) ?{HALF}", saying.say_hour),
        (rf"{START}(\d{{1,2}})(?::([0-5]\d))?([ap])"
         r"(?=(?: ?[-–] ?| to )\d{1,2}(?::\d\d)?[ap]\b)",
         saying.say_short_time),
        (r"(?:(?<=\d[ap][-–])|(?<=\d[ap] [-–] )|(?<=\d[ap] to ))(\d{1,2})(?::([0-5]\d))?([ap])"
         + END, saying.say_short_time),
        (rf"{START}(\d{{1,3}})h ?([0-5]?\d)m(?:in)?(?: ?([0-5]?\d)s)?{END}", saying.say_duration),
        (rf"{START}()(\d{{1,3}})m(?:in)? ?([0-5]?\d)s{END}", saying.say_duration),
        (rf"{START}(\d{{1,4}}):(\d{{1,4}})(?![\w:])", saying.say_ratio),
        (rf"{START}([1-9]\d{{0,2}}(?:(?: \d{{3}}){{2,4}}|(?:\.\d{{3}}){{2,4}}|(?:'\d{{3}}){{1,4}}))"
         r"(?![\w]|[.,]\d)", saying.say_grouped),
        (rf"{START}()(\d{{1,9}}(?:\.\d{{1,9}}){{2,8}}){END}", saying.say_version),
        (rf"{SYMBOL} ?{DECIMAL_COMMA}", saying.say_money_comma),
        (rf"{START}{DECIMAL_COMMA} ?{SYMBOL}", saying.say_money_comma_after),
        (rf"{START}{DECIMAL_COMMA} ?{any_of(CURRENCY_CODES)}{END}", saying.say_money_code_comma),
        (rf"{START}{DECIMAL_COMMA}([ -]?){any_of(UNITS)}{END}(?:{PER_UNIT}{END})?",
         saying.say_quantity_comma),
        (rf"{SYMBOL} ?{NUMBER} ?[-–] ?{CURRENCY}?{NUMBER}{SCALE}", saying.say_money_range),
        (rf"{AFTER_A}{SYMBOL}{NUMBER}{SCALE}(?=[ -][a-z])",
         saying.say_price_of),
        (rf"{SYMBOL}{NUMBER}{SCALE}(?=-[a-z])", saying.say_price_of),
        (rf"(?:(?<!\w)([-+]))?(?:(?<!\w){any_of(COUNTRIES)}(?=\$))?{SYMBOL} ?(-)?{NUMBER}{SCALE}"
         rf"(?:{PER_UNIT}{END})?", saying.say_money),
        (rf"{SIGN}{NUMBER}{SCALE} ?{SYMBOL}(?! ?\d)", saying.say_money_after),
        (rf"{SIGN}{NUMBER}{SCALE} ?{any_of(CURRENCY_CODES)}{END}", saying.say_money_code_after),
        (rf"{START}(\d[1-9])s{END}", saying.say_seconds),
        (rf"'?{START}(\d{{2,4}}|\d{{1,3}}(?:,\d{{3}})+)'?s{END}", saying.say_plural),
        (rf"{START}(\d{{1,3}}) ?ft\.? (\d{{1,2}}) ?in(?:\.|{END})", saying.say_feet_and_inches),
        (rf"{START}(\d{{1,5}}) ([NSEW])\.?(?= {STREET_NAME})", saying.say_house_number),
        (rf"{AFTER_A}{NUMBER}(?:[ -]?in\.|\")(?= [a-z])", saying.say_inch_of),
        (rf"{START}(\d{{1,3}}(?:\.\d{{1,3}})?) ?"
         r"(?:in(?:\.(?= ?[a-z\d(])|(?=\.))|\"(?= ?[x×] ?\d))", saying.say_inches),
        (r"(?<=\" x )(\d{1,3})\"", saying.say_inches),
        (rf"{AFTER_A}{NUMBER}[ -]?{any_of(UNITS)}{END}(?= [a-z])", saying.say_quantity_of),
        (rf"{SIGN}{NUMBER}([ -]?){any_of(UNITS)}{END}(?:{PER_UNIT}{END}|\.(?= [a-z]))?",
         saying.say_quantity),
        (rf"{START}{NUMBER}{PER_UNIT}{END}", saying.say_rate),
        (rf"{START}(\d)' ?(\d{{1,2}})\"", saying.say_height),
        (rf"{START}({WHOLE})(?:st|nd|rd|th){END}", saying.say_ordinal),
        (rf"{START}(\d{{1,9}})/(\d{{1,9}})(?= ?=)", saying.say_division),
        (rf"{START}(?:(\d{{1,4}})(?: {{1,2}}|-))?(\d{{1,4}})/(\d{{1,4}})(?![\w/])",
         saying.say_fraction),
        (rf"{START}50-50{END}", always("fifty fifty")),
        (rf"{START}24/7/365{END}", always("twenty four seven, three sixty five")),
        (rf"{START}401\(?k\b\)?", always("four oh one K")),
        (rf"{START}(720|1080|1440|2160|480|360|240)([pi]){END}", saying.say_video_lines),
        (rf"{SIGN}{NUMBER}[eE]([-+]?\d{{1,3}}){END}", saying.say_scientific),
        (rf"{START}(\d{{1,3}}\.\d{{1,3}})([KMB]){END}", saying.say_millions),
        (rf"{START}{NUMBER}(M|B)(?=\+(?!\w)|\+? {MANY})", saying.say_millions),
        (r"(?:(?<=[Cc]all )|(?<=[Dd]ial ))(\d{3})(?![\d,.]\d|\d)", saying.say_digits),
        (r"(?<=\b[A-Z]{2} )(\d{5})(?![\w-]|[,.]\d)", saying.say_digits),
        (r"(?:(?<=[Cc]ode )|(?<=[Cc]ode is )|(?<=\bPIN )|(?<=\bPIN is )|(?<=\bZIP ))(\d{3,10})"
         r"(?![\d,.]\d|\w)", saying.say_digits),
        (r"(?:(?<=[A-Z])|(?<!\w))(7[0-8]7|(?<=[A-Z])\d{3})-(\d{1,3})(?![\w-])", saying.say_model),
        (r"(?:(?<=[A-Za-z])|(?<=[A-Z]-)|(?<=[Rr]oom )|(?<=[Ff]light )|(?<=Route )|(?<=Highway )"
         r"|(?<=Boeing ))(\d{3,4})(?!\w|[,.]\d)", saying.say_code_name),
        (rf"{SIGN}(\d{{4}})(?!\d|[,.]\d)", saying.say_year),
        (rf"{SIGN}{NUMBER}", saying.say_number),
        (r"(\d++)", numbers.year_or_number),
    ]),
    # names, Roman numerals: what begins with a capital
    (r"[A-Z]", [
        (rf"{START}{MONTH}\.? {DAY_OR_DAYS}(?![\w:%]|[,.]\d){YEAR}", saying.say_month_day),
        (rf"{START}{any_of(DAYS)}\.? ?[-–] ?{any_of(DAYS)}{END}(?:\.(?= [a-z\d]))?",
         saying.say_days),
        (rf"{START}{MONTH}\.? ?[-–] ?{MONTH}(?=\.?(?: \d{{4}}|[ ,;:)]|\.?\Z))", saying.say_months),
        (rf"(?<!\w){BOOK} (\d{{1,3}}):([1-9]\d{{0,2}})(?: ?[-–] ?(\d{{1,3}}))?{END}"
         r"(?! ?[AaPp]\.?[Mm])", saying.say_verse),
        (rf"(?<![A-Za-z]){FORMULA}(?=\d)", saying.say_letters),
        (rf"{START}{any_of(DAYS)}(?=,? (?:{MONTH_NAME}|\d))", saying.say_weekday),
        (rf"(?<!\w){any_of(CURRENCY_CODES)} ?{NUMBER}{SCALE}", saying.say_money_code),
        (rf"(?:(?<=Vol\. )|(?<=Ch\. ))([IVX]){END}", saying.say_roman),
        (rf"{START}{REGNAL} {ROMAN_OVER_1}{END}", saying.say_regnal),
        (rf"{START}{REGNAL} (I)(?=[,;:.)]|'s| ?\Z| (?:was|of|reigned|ruled|died|became|and)\b)",
         saying.say_regnal),
        (rf"{START}{NUMBERED} {ROMAN}{END}", saying.say_numbered),
        (rf"{START}{NUMBERED} (i{{1,3}}|iv|vi{{0,3}}|ix){END}", saying.say_numbered),
        (rf"{START}([A-Z][a-z]{{1,30}}) {ROMAN_IN_LETTERS}{END}", saying.say_numbered),
        (rf"(?<![\w.-])({ROMAN_IN_LETTERS[1:-1]}|XX)(?= [Cc]entur)", saying.say_roman_ordinal),
        (r"(?<![\w.'-])(I(?=,? (?:and|or|to|through) II\b|, II\b)|[IVX](?=[-–/][IVX]{2,4}\b))",
         saying.say_roman),
        (rf"(?:(?!IV)|(?<!\b[Aa]n )(?<!\b[Tt]he )(?<!\bby )(?<!\bvia ))(?<![\w.])(?<![^IVX][-–])"
         rf"(?!{IV_DRIP})"
         rf"{ROMAN_IN_LETTERS}{END}", saying.say_roman),
        (rf"{START}(?=[MDCLXVI]{{4,12}}\b)(M{{1,2}}(?:CM|CD|D?C{{0,3}})(?:XC|XL|L?X{{0,3}})"
         rf"(?:IX|IV|V?I{{0,3}})){END}", saying.say_roman_year),
        (r"(?<!\w)(?!The|See|Ask|Call|Dear|My|Our|Your|His|Her)([A-Z][a-z]{1,30}) Dr\b\.?"
         r"(?! ?[A-Z'])", saying.say_drive),
        (r"(?<!\w)St\.(?= [A-Z])", always("Saint")),
        (r"(?<!\w)St\.", always("Street")),
        (rf"(?<!\w){any_of(TITLES)}(?= [A-Z][a-z])", TITLES.__getitem__),
        (rf"(?<=[a-z] ){any_of(AFTER_NAMES)}(?![\w.]| [A-Z])", AFTER_NAMES.__getitem__),
        (rf"(?<!\w)([NSEW])\.(?= {STREET_NAME})", saying.say_direction),
        (r"(?<!\w)([B-HJ-Z])\.(?= [A-Za-z])", as_written),
        (r"(?<![A-Z]{2} )(?<!\w)US(?!\w)", always("U.S.")),
        (r"(?<=\b[Tt]he )WHO(?!\w)(?! [A-Z]{2})", always("W.H.O.")),
        (r"(?:(?<=\bin )|(?<=\b[Tt]he )|(?<=\b[Aa]n )|(?<=\b[Oo]ur )|(?<=\b[Yy]our ))IT(?![\w'])"
         r"(?! [A-Z]{2})|(?<!\w)IT(?= (?:department|support|team|staff|manager|security)\b)",
         always("I.T.")),
    ]),
    # words, abbreviations
    (r"'?[A-Za-z]|\.N", [
        (r"(?<=[\w.])('s)(?!\w)", as_written),
        (rf"{START}(v)(\d{{1,9}}(?:\.\d{{1,9}}){{0,8}}){END}", saying.say_version),
        (r"(?<=\d)[xX](?=\d+ ?=)", always("times")),
        (r"(?<=\d)[xX](?=\d)", always("by")),
        (r"(?<=\d)[xX](?!\w)", always("times")),
        (rf"(?<!\w)({SOFTWARE}) (\d{{1,9}}(?:\.\d{{1,9}}){{1,8}}){END}", saying.say_release),
        (rf"(?<!\w){any_of(BEFORE_NUMBERS)}"
         rf"(?= ?[$£€(]?\d| (?:{ROMAN_IN_LETTERS[1:-1]}|[IVX])\b)", BEFORE_NUMBERS.__getitem__),
        (r"(?<!\w)etc(?!\w)(?:\.(?! [A-Z]))?", always("et cetera")),
        (rf"(?<!\w){any_of(ABBREVIATIONS)}", ABBREVIATIONS.__getitem__),
        (rf"(?<!\w){any_of(WORDS)}{END}", WORDS.__getitem__),
        (r"((?<!\w)(?:[A-Za-z]\.){2,12}+(?:[A-Za-z](?!\w))?)", as_written),
        (r"(?<=[a-z] )v\.(?= [A-Z])", always("versus")),
        (rf"(?<!\w)(?=[^\s/]{{1,4}}/){any_of(UNITS)}/{any_of(PER)}{END}", saying.say_unit_per),
        # the letter A, which the lexicon takes for the article
        (r"(?<=\d)[aA](?!\w)|(?<!\w)A(?=/|-?\d)|(?<=[a-z] )A(?=[,;:!?)]|\.? ?\Z|\. )",
         always("ay")),
        (r"((?<!\w)'(?:em|tis|twas|cause|til|bout)(?!\w))", as_written),
        (r"([A-Za-z]++(?:['-][A-Za-z]++)*+)", saying.say_word),
    ]),
    # symbols and pauses
    (r"[^\w']", [
        (r" +(?![-x×*–/<>])", silent),
        (r"[=+&@%#<>~]{3,}+", silent),
        (r"(?<=-\d{4}) ?x(?=\d{2,5}(?!\w))", always("extension")),
        (r"(?<=\d) ?[x×] ?(?=\d+ ?=|10\^)", always("times")),
        (r"(?<=\d) ?[x×] ?(?=\d)", always("by")),
        (r"(?:(?<=cm|mm|km|ft|in)|(?<=\d\")) ?[x×] ?(?=\d)", always("by")),
        (r"(?<=\d) ?\*\* ?(?=\d)", always("to the power of")),
        (r"(?<=\d) ?\* ?(?=\d)", always("times")),
        (r"(?<=\d) - (?=\d)|(?<=\d)-(?=\d+(?:\.\d+)? ?=)", always("minus")),
        (rf"(?:(?<=[\d%°])-|(?<=\d[a-zA-Z][mMgBs])-|(?<=\d[mgsap])-|(?<=[\w%°]) ?– ?"
         rf"|(?<=[aApP]\.[mM]\.) ?[-–] ?)(?=[$£€]?\d)|(?<=\w)-(?=[$£€]\d)"
         rf"|(?<=noon)-(?=\d)|(?<=midnight)-(?=\d)"
         rf"|(?<=[a-z.\d]) ?– ?(?={MONTH_NAME}|{DAY_NAME})", always("to")),
        (r"(?:(?<=\b[IVX])|(?<=[IVX]{2}))[-–](?=[IVX]{1,4}\b)", always("to")),
        (r"(?<=[a-z]{3})\^\d+", silent),  # a footnote
        (r"\^2(?!\d)", always("squared")),
        (r"\^3(?!\d)", always("cubed")),
        (r"\^-(?=\d)", always("to the power of minus")),
        (r"\^(?=\d)", always("to the power of")),
        (r"(?<!\S)--(?=[a-z])", silent),  # --option
        (r"#(?= ?\d)", always("number")),
        (r"#([A-Za-z][A-Za-z]*)", saying.say_hashtag),
        (r"(?<=/\d)\"|(?<=/\d\d)\"", always("inch")),
        (r"(?<=GMT|UTC) ?-(?=\d)", always("minus")),
        (r"[~≈](?= ?[$£€]?\d)", always("about")),
        (r"(?<![\w)] )(?<![\w)])<(?=[$£€]?\d)|(?<=[a-z] )<(?=[$£€]?\d)", always("less than")),
        (r"(?<![\w)] )(?<![\w)])>(?=[$£€]?\d)|(?<=[a-z] )>(?=[$£€]?\d)", always("more than")),
        (r"(?<![\w)] )(?<![\w)])(?:<=|≤)(?= ?[$£€]?\d)|(?<=[a-z]{2} )(?:<=|≤)(?=[$£€]?\d)",
         always("at most")),
        (r"(?<![\w)] )(?<![\w)])(?:>=|≥)(?= ?[$£€]?\d)|(?<=[a-z]{2} )(?:>=|≥)(?=[$£€]?\d)",
         always("at least")),
        (r"(?<=[\w ])<(?=[\w ])", always("is less than")),
        (r"(?<=[\w ])>(?=[\w ])", always("is greater than")),
        (any_of(SYMBOLS), SYMBOLS.__getitem__),
        (r"\.{2,}+(?= ?\Z| [\"'(]{0,3}[A-Z])", always(".")),
        (r"\.{2,}+|—|–|-{2,}+|(?<= )[-/](?= )|(?<!\w)[(\[{]|[)\]}](?= +\S)|\|", always(",")),
        (r"(?<!\S)\.(?=[A-Za-z])|(?<=\w)\.(?=[a-z])|(?<=[a-z])\.(?=\d)", always("dot")),
        (r"([,;:.!?])", as_written),
        (r"([\u0370-\u03ff\u0400-\u045f])", saying.say_letter_name),
    ]),
]  # fmt: skip


def _scanner() -> tuple[re.Pattern[str], dict[int, tuple[Callable[..., str], int]]]:
    """One pattern for all rules. Its last group tells the rule; the rule's own groups follow it."""
    sections: list[str] = []
    say_of: dict[int, tuple[Callable[..., str], int]] = {}
    index = 1
    for beginning, rules in SECTIONS:
        sections.append(f"(?={beginning})(?:" + "|".join(f"({rule})" for rule, _ in rules) + ")")
        for rule, say in rules:
            groups = re.compile(rule, re.ASCII).groups
            say_of[index] = say, groups
            index += 1 + groups
    return re.compile("|".join(sections), re.ASCII), say_of


SCANNER, SAY = _scanner()
