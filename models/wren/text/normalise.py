"""Written English → the words to say, each knowing the characters it was written with.

One table, `RULES`, read top to bottom at every place of the text: a pattern, and how its groups
are said. What no rule knows is skipped. The result is words and pauses, ready for the G2P:

    "It costs $8.75 million." → It · costs · eight point seven five million dollars · .
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from omni_speak.models.wren.text import numbers
from omni_speak.models.wren.text.markup import plain_text
from omni_speak.models.wren.text.tables import (
    ABBREVIATIONS,
    ADDRESS_MARKS,
    BEFORE_NUMBERS,
    CURRENCIES,
    DAYS,
    MAGNITUDES,
    MONTHS,
    PER,
    ROMAN_DIGITS,
    SPELLED_DOMAINS,
    SYMBOLS,
    UNITS,
    WORDS,
)

PAUSES = ",;:.!?"  # all the voice knows, weakest first: of several in a row the strongest is kept
LONGEST_WORD = 32  # longer than English needs; more is read in pieces


@dataclass(frozen=True, slots=True)
class Span:
    """What is said for `text[start:end]`: one or more words, or a pause."""

    spoken: str
    start: int
    end: int

    @property
    def is_pause(self) -> bool:
        return self.spoken in PAUSES


def normalise(text: str) -> list[Span]:
    """The words and pauses of a text, in order; empty if there is nothing to say."""
    if not any(char.isalnum() for char in text):
        return []
    plain, offsets = plain_text(text)
    spans: list[Span] = []
    for match in SCANNER.finditer(plain):
        rule = match.lastindex or 0
        say, groups = SAY[rule]
        spoken = say(*match.groups()[rule : rule + groups])
        if not spoken:
            continue
        first = match.end() - len(match[0].lstrip())
        last = match.start() + len(match[0].rstrip()) - 1
        span = Span(spoken, offsets[first], offsets[last] + 1)
        if not span.is_pause or (spans and not spans[-1].is_pause):
            spans.append(span)
        elif spans and PAUSES.index(spoken) > PAUSES.index(spans[-1].spoken):
            spans[-1] = span
    return spans


def spoken_text(spans: Sequence[Span]) -> str:
    """The sentence as the G2P reads it."""
    return "".join(span.spoken if span.is_pause else f" {span.spoken}" for span in spans).lstrip()


# --- how it is said: groups of a pattern → words --------------------------------------------


def as_written(written: str) -> str:
    return written


def silent() -> str:
    return ""


def always(spoken: str) -> Callable[[], str]:
    return lambda: spoken


def say_number(sign: str | None, value: str) -> str:
    return _sign(sign) + numbers.number(value)


def say_year(sign: str | None, value: str) -> str:
    return _sign(sign) + (numbers.number(value) if sign else numbers.year_or_number(value))


def say_ordinal(value: str) -> str:
    whole = value.replace(",", "")
    return numbers.ordinal(int(whole)) if len(whole) <= numbers.LONGEST else numbers.number(value)


def say_plural(value: str) -> str:
    return numbers.plural(numbers.year_or_number(value))


def say_fraction(whole: str | None, numerator: str, denominator: str) -> str:
    part = numbers.fraction(int(numerator), int(denominator))
    return f"{numbers.number(whole)} and {part.replace('one ', 'a ', 1)}" if whole else part


def say_money(
    sign: str | None, us: str | None, symbol: str, value: str, scale: str | None, per: str | None
) -> str:
    one, many, one_cent, many_cents = CURRENCIES[symbol]
    if us:
        one, many = f"U.S. {one}", f"U.S. {many}"
    whole, _, cents = value.partition(".")
    if scale:
        amount = f"{numbers.number(value)} {MAGNITUDES.get(scale.lower(), scale)} {many}"
    elif len(cents) != 2:
        amount = _count(value, one, many)
    elif not int(cents):
        amount = _count(whole, one, many)
    else:
        amount = _count(str(int(cents)), one_cent, many_cents)
        if whole.strip("0"):
            amount = f"{_count(whole, one, many)} and {amount}"
    return _sign(sign) + amount + _per(per)


def say_money_range(symbol: str, low: str, high: str, scale: str | None) -> str:
    return f"{numbers.number(low)} to {say_money(None, None, symbol, high, scale, None)}"


def say_quantity(sign: str | None, value: str, joint: str, unit: str, per: str | None) -> str:
    one, many = UNITS[unit]
    if joint == "-":  # a 5-km run
        many = one
    return _sign(sign) + _count(value, one, many) + _per(per)


def say_rate(value: str, per: str) -> str:
    return numbers.number(value) + _per(per)


def say_height(feet: str, inches: str) -> str:
    return f"{numbers.number(feet)} foot {numbers.number(inches)}"


def say_time(hour: str, minute: str, second: str | None, half: str | None) -> str:
    said = numbers.cardinal(int(hour))
    if int(minute) or second:
        said += f" {numbers.two_digits(int(minute))}"
    elif not half:
        said += " o'clock" if 1 <= int(hour) <= 12 else " hundred hours"
    if second:
        said += f" and {_count(second, 'second', 'seconds')}"
    return said + _half(half)


def say_hour(hour: str, half: str) -> str:
    return numbers.cardinal(int(hour)) + _half(half)


def say_ratio(left: str, right: str) -> str:
    return f"{numbers.number(left)} to {numbers.number(right)}"


def say_month_day(month: str, day: str, year: str | None) -> str:
    return f"{_month(month)} {numbers.ordinal(int(day))}{_of_year(year)}"


def say_day_month(day: str, month: str, year: str | None) -> str:
    return f"the {numbers.ordinal(int(day))} of {_month(month)}{_of_year(year)}"


def say_days(first: str, last: str) -> str:
    return f"{DAYS[first]} to {DAYS[last]}"


def say_iso_date(year: str, month: str, day: str) -> str:
    return say_month_day(MONTHS[int(month) - 1], day, year)


def say_slash_date(month: str, day: str, year: str) -> str:
    return say_iso_date(year, month, day)


def say_slash_date_day_first(day: str, month: str, year: str) -> str:
    return say_iso_date(year, month, day)


def say_phone(written: str) -> str:
    """Digit by digit, with a breath between the groups."""
    said = ", ".join(numbers.digits(group) for group in re.findall(r"\d+", written))
    return f"plus {said}" if written.startswith("+") else said


def say_version(v: str | None, dotted: str) -> str:
    said = " point ".join(numbers.number(part) for part in dotted.split("."))
    return f"version {said}" if v else said


def say_address(written: str) -> str:
    """An e-mail address, a URL or a path as a person reads it out: no scheme, no query."""
    address = re.sub(r"^(?:[a-z]+://)?(?:www\.)?|[?#].*", "", written).rstrip("/")
    said = []
    for part in re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]", address):
        if part.isdecimal():
            said.append(numbers.number(part) if len(part) < 3 else numbers.digits(part))
        elif part in SPELLED_DOMAINS:
            said.append(".".join(part.upper()))
        elif part.isalpha():
            said.append(say_word(part))
        elif part in ADDRESS_MARKS:
            said.append(ADDRESS_MARKS[part])
    return " ".join(said)


def say_regnal(name: str, roman: str) -> str:
    return f"{name} the {numbers.ordinal(_roman(roman))}"


def say_numbered(name: str, roman: str) -> str:
    return f"{name} {numbers.cardinal(_roman(roman))}"


def say_word(word: str) -> str:
    """A word as it is, unless it is longer than words are."""
    if len(word) <= LONGEST_WORD:
        return word
    return " ".join(
        part[i : i + LONGEST_WORD]
        for part in word.split("-")
        for i in range(0, len(part), LONGEST_WORD)
    )


def say_letter_name(letter: str) -> str:
    """β → beta, ж → zhe."""
    return unicodedata.name(letter, "").rpartition(" ")[2].lower()


def _sign(sign: str | None) -> str:
    return {"-": "minus ", "+": "plus "}[sign] if sign else ""


def _count(value: str, one: str, many: str) -> str:
    return f"{numbers.number(value)} {one if value == '1' else many}"


def _per(per: str | None) -> str:
    return f" per {PER[per]}" if per else ""


def _half(half: str | None) -> str:
    return f" {half.lower()}.m." if half else ""


def _month(written: str) -> str:
    return next(month for month in MONTHS if month.startswith(written[:3]))


def _of_year(year: str | None) -> str:
    return f", {numbers.year_or_number(year)}" if year else ""


def _roman(numeral: str) -> int:
    values = [ROMAN_DIGITS[letter] for letter in numeral]
    return sum(-v if v < max(values[i:]) else v for i, v in enumerate(values))


# --- how it is written ----------------------------------------------------------------------


def any_of(words: Iterable[str]) -> str:
    """A group that matches any of the words, the longest first."""
    return "(" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"


START = r"(?<![\w.,])"
END = r"(?!\w)"
SIGN = r"(?:(?<![\w.)])([-+]))?(?<![\w.])"
WHOLE = r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)"
NUMBER = rf"({WHOLE}(?:\.\d++)?|\.\d++)"
SCALE = r"(?: ?(thousand|million|billion|trillion|[kKmMbBtT]n?)(?![A-Za-z]))?"
HALF = r"([AaPp])(?:[Mm]|\.[Mm]\.?)(?!\w)"
YEAR = r"(?:,? (\d{4})(?!\w))?"
MONTH = (
    r"(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b"
)
MONTH_NUMBER = r"(0?[1-9]|1[0-2])"
DAY = r"(0?[1-9]|[12]\d|3[01])"
PER_UNIT = rf"/{any_of(PER)}"
DOMAIN = r"(?:com|org|net|io|ai|dev|edu|gov|uk)(?![\w-])"
REGNAL = (
    r"(Henry|Louis|George|Edward|Charles|Elizabeth|James|William|Richard|Philip|Paul|Benedict"
    r"|Pius|Napoleon|Catherine|Peter|Alexander|Nicholas|Frederick|Ivan|Leo|Francis|Ramses)"
)
NUMBERED = (
    r"(Chapter|Part|Act|Scene|Book|Volume|Section|Type|Phase|Class|Level|War|Appendix|Figure"
    r"|Table|Bowl|Article|Unit|Stage)"
)
ROMAN = r"((?=[IVX])X{0,3}(?:IX|IV|V?I{0,3}))"
ROMAN_OVER_1 = rf"(?!I\b){ROMAN}"
ROMAN_IN_LETTERS = r"(I{2,3}|IV|VI{1,3}|IX|X[IV]{1,4}|XX[IVX]{0,4})"

Rule = tuple[str, Callable[..., str]]

# What the rules of a section may begin with, and its rules. They are compiled into one pattern, so
# they have no named groups and no back references. No input is slow: runs are possessive or
# bounded.
SECTIONS: list[tuple[str, list[Rule]]] = [
    # addresses
    (r"[\w./~+-]", [
        (r"((?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})", say_address),
        (r"((?:https?|ftp|wss?)://[^\s<>\"()]{0,2000}[\w/])", say_address),
        (rf"((?<![\w.-])(?:[A-Za-z0-9-]{{1,63}}\.){{1,8}}{DOMAIN}(?:/[^\s<>\"()]{{0,2000}}[\w/])?)",
         say_address),
        (rf"{START}(\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?![\w.])", say_address),
        (r"((?<!\S)[~.]{0,2}(?:/[\w.-]{1,64}){2,32})", say_address),
    ]),
    # numbers and what they count
    (r"['(+-]?(?:US)?[$£€¥₹.]?\d|[$£€¥₹] ", [
        (r"((?<!\w)\+(?:\d{1,3}(?:[ .-]\(?\d{2,4}\)?){2,5}|\d{7,15}))" + END, say_phone),
        (rf"{START}((?:1[-. ])?(?:\(\d{{3}}\) ?|\d{{3}}[-. ])\d{{3}}[-.]\d{{4}})(?![\w-])",
         say_phone),
        (rf"{START}(\d{{3}}-\d{{4}})(?![\w-])", say_phone),
        (rf"{START}(\d{{4}})[-/](0[1-9]|1[0-2])[-/]{DAY}{END}", say_iso_date),
        (rf"{START}{MONTH_NUMBER}/{DAY}/(\d{{4}}){END}", say_slash_date),
        (rf"{START}{DAY}/{MONTH_NUMBER}/(\d{{4}}){END}", say_slash_date_day_first),
        (rf"{START}{DAY} {MONTH}{YEAR}", say_day_month),
        (rf"{START}([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?: ?{HALF}|(?![\w:]))", say_time),
        (rf"{START}(\d{{1,2}}) ?{HALF}", say_hour),
        (rf"{START}(\d{{1,4}}):(\d{{1,4}})(?![\w:])", say_ratio),
        (rf"{START}()(\d{{1,9}}(?:\.\d{{1,9}}){{2,8}}){END}", say_version),
        (rf"([$£€¥₹]) ?{NUMBER} ?[-–] ?[$£€¥₹]?{NUMBER}{SCALE}", say_money_range),
        (rf"(?:(?<!\w)([-+]))?(?:(?<!\w)(US))?([$£€¥₹]) ?{NUMBER}{SCALE}(?:{PER_UNIT}{END})?",
         say_money),
        (rf"'?{START}(\d{{2,4}}|\d{{1,3}}(?:,\d{{3}})+)'?s{END}", say_plural),
        (rf"{SIGN}{NUMBER}([ -]?){any_of(UNITS)}{END}(?:{PER_UNIT}{END})?", say_quantity),
        (rf"{START}{NUMBER}{PER_UNIT}{END}", say_rate),
        (rf"{START}(\d)' ?(\d{{1,2}})\"", say_height),
        (rf"{START}({WHOLE})(?:st|nd|rd|th){END}", say_ordinal),
        (rf"{START}(?:(\d{{1,4}})[ -])?(\d{{1,4}})/(\d{{1,4}})(?![\w/])", say_fraction),
        (rf"{SIGN}(\d{{4}})(?!\d|[,.]\d)", say_year),
        (rf"{SIGN}{NUMBER}", say_number),
        (r"(\d++)", numbers.year_or_number),
    ]),
    # words, abbreviations, Roman numerals
    (r"'?[A-Za-z]|\.N", [
        (rf"{START}{MONTH}\.? {DAY}(?:st|nd|rd|th)?(?![\w:%]|[,.]\d){YEAR}", say_month_day),
        (rf"{START}{any_of(DAYS)} ?[-–] ?{any_of(DAYS)}{END}", say_days),
        (rf"{START}(v)(\d{{1,9}}(?:\.\d{{1,9}}){{0,8}}){END}", say_version),
        (r"(?<=\d)[xX](?=\d)", always("by")),
        (r"(?<=\d)[xX](?!\w)", always("times")),
        (rf"(?<!\w){any_of(BEFORE_NUMBERS)}(?= ?[$£€]?\d)", BEFORE_NUMBERS.__getitem__),
        (rf"{START}{REGNAL} {ROMAN_OVER_1}{END}", say_regnal),
        (rf"{START}{NUMBERED} {ROMAN}{END}", say_numbered),
        (rf"{START}([A-Z][a-z]{{1,30}}) {ROMAN_IN_LETTERS}{END}", say_numbered),
        (r"(?<!\w)St\.(?= [A-Z])", always("Saint")),
        (r"(?<!\w)St\.", always("Street")),
        (rf"(?<!\w){any_of(ABBREVIATIONS)}", ABBREVIATIONS.__getitem__),
        (rf"(?<!\w){any_of(WORDS)}{END}", WORDS.__getitem__),
        (r"((?<!\w)(?:[A-Za-z]\.){2,12}+(?:[A-Za-z](?!\w))?)", as_written),
        (r"(?<!\w)([B-HJ-Z])\.(?= [A-Z])", as_written),
        (r"(?<![A-Z]{2} )(?<!\w)US(?!\w)", always("U.S.")),
        # the letter A, which the lexicon takes for the article
        (r"(?<=\d)[aA](?!\w)|(?<!\w)A(?=/|-?\d)|(?<=[a-z] )A(?=[,;:!?)]|\.? ?\Z|\. )",
         always("ay")),
        (r"((?<!\w)'(?:em|tis|twas|cause|til|bout)(?!\w))", as_written),
        (r"([A-Za-z]++(?:['-][A-Za-z]++)*+)", say_word),
    ]),
    # symbols and pauses
    (r"[^\w']", [
        (r" +(?![-x×*–/<>])", silent),
        (r"[=+&@%#<>~]{3,}+", silent),
        (r"(?<=\d) ?[x×] ?(?=\d)", always("by")),
        (r"(?<=\d) ?\*{1,2} ?(?=\d)", always("times")),
        (r"(?<=\d) - (?=\d)", always("minus")),
        (r"(?:(?<=[\d%°])-|(?<=\d[aApP][mM])-|(?<=\w) ?– ?|(?<=[aApP]\.[mM]\.) ?[-–] ?)"
         r"(?=[$£€]?\d)|(?<=\w)-(?=[$£€]\d)", always("to")),
        (r"\^2(?!\d)", always("squared")),
        (r"\^3(?!\d)", always("cubed")),
        (r"\^(?=-?\d)", always("to the power of")),
        (r"(?<!\S)--(?=[a-z])", silent),  # --option
        (r"#(?= ?\d)", always("number")),
        (r"#(?=[A-Za-z])", always("hashtag")),
        (r"[~≈](?= ?[$£€]?\d)", always("about")),
        (r"(?<=[\w ])<(?=[\w ])", always("is less than")),
        (r"(?<=[\w ])>(?=[\w ])", always("is greater than")),
        (any_of(SYMBOLS), SYMBOLS.__getitem__),
        (r"\.{2,}+(?= ?\Z| [\"'(]{0,3}[A-Z])", always(".")),
        (r"\.{2,}+|—|–|-{2,}+|(?<= )[-/](?= )|(?<!\w)[(\[{]|[)\]}](?= +\S)|\|", always(",")),
        (r"(?<=\w)\.(?=[a-z])", always("dot")),
        (r"([,;:.!?])", as_written),
        (r"([\u0370-\u03ff\u0400-\u045f])", say_letter_name),
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
