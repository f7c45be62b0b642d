"""Written English → the words to say, each knowing the characters it was written with.

One table, `RULES`, read top to bottom at every place in the text: a pattern and how its groups are
said. What no rule knows is skipped. The result is words and pauses, ready for the G2P:

    normalise("It costs $8.75 million.")
    → It · costs · eight point seven five million dollars · .
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omni_speak.models.wren.text import numbers
from omni_speak.models.wren.text.markup import plain_text

PAUSES = ",;:.!?"  # weakest first: of several in a row the strongest is kept
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
    """Words and pauses of a text, in order. Empty if there is nothing to say."""
    plain, offsets = plain_text(text)
    spans: list[Span] = []
    for match in SCANNER.finditer(plain):
        rule = match.lastindex or 0
        groups = match.groups()[rule : rule + VERBALISERS[rule].groups]
        said = VERBALISERS[rule].say(*groups).strip()
        if not said:
            continue
        span = Span(said, offsets[match.start()], offsets[match.end() - 1] + 1)
        if not span.is_pause:
            spans.append(span)
        elif spans and not spans[-1].is_pause:
            spans.append(span)
        elif spans and PAUSES.index(said) > PAUSES.index(spans[-1].spoken):
            spans[-1] = span
    return spans


def spoken_text(spans: Sequence[Span]) -> str:
    """The sentence the G2P reads."""
    return "".join(
        span.spoken if span.is_pause or i == 0 else f" {span.spoken}"
        for i, span in enumerate(spans)
    )


# --- how things are said --------------------------------------------------------------------

MONTHS = (
    "January February March April May June July August September October November December"
).split()
CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "sen", "sen"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
}
MAGNITUDES = {
    "k": "thousand",
    "m": "million",
    "mn": "million",
    "b": "billion",
    "bn": "billion",
    "t": "trillion",
    "tn": "trillion",
}
UNITS = {
    "%": ("percent", "percent"),
    "°": ("degree", "degrees"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "C": ("degree Celsius", "degrees Celsius"),
    "F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "¢": ("cent", "cents"),
    "km": ("kilometer", "kilometers"),
    "m": ("meter", "meters"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "mi": ("mile", "miles"),
    "yd": ("yard", "yards"),
    "ft": ("foot", "feet"),
    "km2": ("square kilometer", "square kilometers"),
    "m2": ("square meter", "square meters"),
    "m3": ("cubic meter", "cubic meters"),
    "cm3": ("cubic centimeter", "cubic centimeters"),
    "sq ft": ("square foot", "square feet"),
    "mph": ("mile per hour", "miles per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "kg": ("kilogram", "kilograms"),
    "g": ("gram", "grams"),
    "mg": ("milligram", "milligrams"),
    "μg": ("microgram", "micrograms"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "L": ("liter", "liters"),
    "l": ("liter", "liters"),
    "mL": ("milliliter", "milliliters"),
    "ml": ("milliliter", "milliliters"),
    "s": ("second", "seconds"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "ms": ("millisecond", "milliseconds"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "yr": ("year", "years"),
    "yrs": ("year", "years"),
    "kB": ("kilobyte", "kilobytes"),
    "KB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "MiB": ("mebibyte", "mebibytes"),
    "GiB": ("gibibyte", "gibibytes"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "fps": ("frame per second", "frames per second"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"),
    "MW": ("megawatt", "megawatts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "V": ("volt", "volts"),
    "mA": ("milliamp", "milliamps"),
    "mAh": ("milliamp hour", "milliamp hours"),
    "dB": ("decibel", "decibels"),
    "USD": ("U.S. dollar", "U.S. dollars"),
    "EUR": ("euro", "euros"),
    "GBP": ("pound", "pounds"),
}
ABBREVIATIONS = {  # written with its full stop
    "Mr.": "Mister",
    "Mrs.": "Missus",
    "Ms.": "Miz",
    "Prof.": "Professor",
    "Rev.": "Reverend",
    "Gen.": "General",
    "Gov.": "Governor",
    "Sen.": "Senator",
    "Rep.": "Representative",
    "Capt.": "Captain",
    "Lt.": "Lieutenant",
    "Sgt.": "Sergeant",
    "Col.": "Colonel",
    "Hon.": "Honorable",
    "Jr.": "Junior",
    "Sr.": "Senior",
    "Mt.": "Mount",
    "Ft.": "Fort",
    "Ave.": "Avenue",
    "Blvd.": "Boulevard",
    "Rd.": "Road",
    "Inc.": "Incorporated",
    "Ltd.": "Limited",
    "Corp.": "Corporation",
    "Co.": "Company",
    "Bros.": "Brothers",
    "Dept.": "Department",
    "Univ.": "University",
    "e.g.": "for example",
    "E.g.": "For example",
    "i.e.": "that is",
    "I.e.": "That is",
    "etc.": "et cetera",
    "vs.": "versus",
    "cf.": "compare",
    "al.": "al",
    "approx.": "approximately",
    "est.": "established",
    "max.": "maximum",
    "min.": "minimum",
    "incl.": "including",
    "excl.": "excluding",
    "tel.": "telephone",
    "Tel.": "Telephone",
    "a.k.a.": "also known as",
    "Jan.": "January",
    "Feb.": "February",
    "Apr.": "April",
    "Aug.": "August",
    "Sep.": "September",
    "Sept.": "September",
    "Oct.": "October",
    "Nov.": "November",
    "Dec.": "December",
    "Mon.": "Monday",
    "Tue.": "Tuesday",
    "Tues.": "Tuesday",
    "Wed.": "Wednesday",
    "Thu.": "Thursday",
    "Thur.": "Thursday",
    "Thurs.": "Thursday",
    "Fri.": "Friday",
}
BEFORE_NUMBERS = {  # abbreviations only where a number follows
    "No.": "number",
    "no.": "number",
    "Nos.": "numbers",
    "Fig.": "Figure",
    "fig.": "figure",
    "Vol.": "Volume",
    "vol.": "volume",
    "Ch.": "Chapter",
    "ch.": "chapter",
    "Sec.": "Section",
    "p.": "page",
    "pp.": "pages",
    "ca.": "circa",
    "c.": "circa",
    "Mar.": "March",
    "Jun.": "June",
    "Jul.": "July",
    "Sat.": "Saturday",
    "Sun.": "Sunday",
    "Jan": "January",
    "Feb": "February",
    "Apr": "April",
    "Aug": "August",
    "Sep": "September",
    "Sept": "September",
    "Oct": "October",
    "Nov": "November",
    "Dec": "December",
    "#": "number",
    "~": "about",
    "≈": "about",
}
WORDS = {  # no full stop, read unlike the lexicon would
    "vs": "versus",
    "w/": "with",
    "w/o": "without",
    "US": "U.S.",
    "WHO": "W.H.O.",
    "24/7": "twenty-four seven",
    "9/11": "nine eleven",
    "C++": "C plus plus",
    "C#": "C sharp",
    "F#": "F sharp",
    ".NET": "dot net",
}
SYMBOLS = {
    "&": "and",
    "@": "at",
    "%": "percent",
    "=": "equals",
    "==": "equals",
    "≠": "is not equal to",
    "≈": "is about",
    "≤": "is at most",
    "≥": "is at least",
    "<=": "is at most",
    ">=": "is at least",
    "×": "times",
    "÷": "divided by",
    "±": "plus or minus",
    "°": "degrees",
    "§": "section",
    "→": "to",
    "->": "to",
    "=>": "to",
    "∞": "infinity",
    "√": "the square root of",
    "€": "euros",
    "£": "pounds",
    "¥": "yen",
    "∑": "the sum of",
    "∫": "the integral of",
}
ADDRESS_MARKS = {
    ".": "dot",
    "/": "slash",
    "-": "dash",
    "_": "underscore",
    "@": "at",
    "+": "plus",
    ":": "colon",
    "~": "tilde",
    "%": "percent",
    "=": "equals",
    "&": "and",
}
SPELLED_DOMAINS = {"ai", "edu", "eu", "io", "tv", "uk", "us", "html", "php"}
PER = {
    "h": "hour",
    "hr": "hour",
    "s": "second",
    "sec": "second",
    "min": "minute",
    "mo": "month",
    "yr": "year",
    "wk": "week",
    "lb": "pound",
    "kg": "kilogram",
    "L": "liter",
}
ROMAN = {"I": 1, "V": 5, "X": 10}


def say_number(sign: str | None, value: str) -> str:
    return _sign(sign) + numbers.number(value)


def say_whole_number(sign: str | None, value: str) -> str:
    return _sign(sign) + (numbers.number(value) if sign else numbers.whole_number(value))


def say_ordinal(value: str) -> str:
    return numbers.ordinal(int(value.replace(",", "")))


def say_plural(value: str) -> str:
    """1990s, 80s, 747s."""
    return numbers.plural(numbers.whole_number(value))


def say_fraction(whole: str | None, numerator: str, denominator: str) -> str:
    part = numbers.fraction(int(numerator), int(denominator))
    if not whole:
        return part
    article = "a " + part.removeprefix("one ") if part.startswith("one ") else part
    return f"{numbers.number(whole)} and {article}"


def say_money(
    sign: str | None, of_us: str | None, symbol: str, value: str, magnitude: str, per: str
) -> str:
    one, many, one_cent, many_cents = CURRENCIES[symbol]
    if of_us:
        one, many = f"U.S. {one}", f"U.S. {many}"
    whole, _, cents = value.partition(".")
    if magnitude:
        magnitude = MAGNITUDES.get(magnitude.lower(), magnitude.lower())
        amount = f"{numbers.number(value)} {magnitude} {many}"
    elif len(cents) == 2:
        parts = []
        if int(whole.replace(",", "") or 0) or not int(cents):
            parts.append(_count(whole, one, many))
        if int(cents):
            parts.append(_count(str(int(cents)), one_cent, many_cents))
        amount = " and ".join(parts)
    else:
        amount = _count(value, one, many)
    return _sign(sign) + amount + _per(per)


def say_quantity(sign: str | None, value: str, joint: str, unit: str, per: str) -> str:
    one, many = UNITS[unit]
    one_only = joint == "-" and unit not in ("%",)  # a 5-km run
    return _sign(sign) + _count(value, one, one if one_only else many) + _per(per)


def say_number_per(value: str, per: str) -> str:
    return numbers.number(value) + _per(per)


def say_height(feet: str, inches: str) -> str:
    return f"{numbers.number(feet)} foot {numbers.number(inches)}"


def say_time(hour: str, minute: str, second: str | None, half: str | None) -> str:
    said = numbers.cardinal(int(hour))
    if second:
        said += f" {numbers.two_digits(int(minute))} and {_count(second, 'second', 'seconds')}"
    elif int(minute):
        said += f" {numbers.two_digits(int(minute))}"
    elif not half:
        said += " o'clock" if 1 <= int(hour) <= 12 else " hundred hours"
    return said + _half(half)


def say_hour(hour: str, half: str) -> str:
    return numbers.cardinal(int(hour)) + _half(half)


def say_month_day(month: str, day: str, year: str | None) -> str:
    return f"{_month(month)} {numbers.ordinal(int(day))}{_of_year(year)}"


def say_day_month(day: str, month: str, year: str | None) -> str:
    return f"the {numbers.ordinal(int(day))} of {_month(month)}{_of_year(year)}"


def say_iso_date(year: str, month: str, day: str) -> str:
    return say_month_day(MONTHS[int(month) - 1], day, year)


def say_slash_date(month: str, day: str, year: str) -> str:
    if int(month) > 12:
        month, day = day, month
    return say_month_day(MONTHS[int(month) - 1], day, year)


def say_phone(written: str) -> str:
    """Digit by digit, with a breath between the groups."""
    groups = re.findall(r"\d+", written)
    said = ", ".join(numbers.digits(group) for group in groups)
    return f"plus {said}" if written.startswith("+") else said


def say_version(v: str | None, dotted: str) -> str:
    parts = " point ".join(numbers.number(part) for part in dotted.split("."))
    return f"version {parts}" if v else parts


def say_address(written: str) -> str:
    """An e-mail address, a URL or a path, as a person reads it out."""
    host = re.sub(r"^[a-z]+://|^www\.", "", re.sub(r"^[a-z]+://", "", written))
    host = re.split(r"[?#]", host)[0].rstrip("/")
    said = []
    for part in re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]", host):
        if part.isdigit():
            said.append(numbers.number(part) if len(part) < 3 else numbers.digits(part))
        elif part in SPELLED_DOMAINS:
            said.append(".".join(part.upper()))
        else:
            said.append(ADDRESS_MARKS.get(part, say_word(part) if part.isalpha() else ""))
    return " ".join(filter(None, said))


def say_regnal(name: str, roman: str) -> str:
    return f"{name} the {numbers.ordinal(_roman(roman))}"


def say_numbered(name: str, roman: str) -> str:
    return f"{name} {numbers.cardinal(_roman(roman))}"


def say_street(saint: str | None, drive: str | None) -> str:
    return "Street" if saint else "Drive" if drive else ""


def say_word(word: str) -> str:
    """A word as it is, unless it is longer than words are."""
    if len(word) <= LONGEST_WORD:
        return word
    return " ".join(
        part[i : i + LONGEST_WORD]
        for part in word.split("-")
        for i in range(0, len(part), LONGEST_WORD)
    )


def say_greek(letter: str) -> str:
    return unicodedata.name(letter, "").split()[-1].lower()


def say_dots(end: str | None) -> str:
    return "," if end is None else "."


def _sign(sign: str | None) -> str:
    return {"-": "minus ", "+": "plus "}.get(sign or "", "")


def _count(value: str, one: str, many: str) -> str:
    return f"{numbers.number(value)} {one if value == '1' else many}"


def _per(per: str | None) -> str:
    return f" per {PER.get(per, per)}" if per else ""


def _half(half: str | None) -> str:
    return f" {half.lower()}.m." if half else ""


def _month(written: str) -> str:
    return next(month for month in MONTHS if month.startswith(written[:3]))


def _of_year(year: str | None) -> str:
    return f", {numbers.year(int(year))}" if year else ""


def _roman(numeral: str) -> int:
    values = [ROMAN[letter] for letter in numeral]
    return sum(-v if v < max(values[i:]) else v for i, v in enumerate(values))


# --- what is written ------------------------------------------------------------------------

SIGN = r"(?:(?<![\w.)])([-+]))?"
NUM = r"((?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)(?:\.\d++)?|\.\d++)"
WHOLE = r"(\d{1,3}(?:,\d{3})+(?!\d)|\d++)"
APART = r"(?<![\w.,])"
END = r"(?!\w)"
HALF = r"(?:([AaPp])(?:[Mm]|\.[Mm]\.)(?!\w))"
MONTH = (
    r"(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
DAY = r"(0?[1-9]|[12]\d|3[01])"
PER_UNIT = r"(?:/(month|mo|year|yr|week|wk|day|hour|hr|h|minute|min|second|sec|s|person|kg|lb|L))?"
REGNAL = (
    r"(Henry|Louis|George|Edward|Charles|Elizabeth|James|William|Richard|Philip|John Paul|Benedict"
    r"|Pius|Napoleon|Catherine|Peter|Alexander|Nicholas|Frederick|Ivan|Leo|Francis|Ramses)"
)
NUMBERED = (
    r"(Chapter|Part|Act|Scene|Book|Volume|Section|Type|Phase|Class|Level|World War|War|Appendix"
    r"|Figure|Table|Super Bowl|Mark|Article|Unit|Stage|Title)"
)


def _any(table: dict[str, object] | dict[str, str] | dict[str, tuple[str, str]]) -> str:
    """A group that matches any key of a table, the longest first."""
    return "(" + "|".join(re.escape(key) for key in sorted(table, key=len, reverse=True)) + ")"


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` without names or back references; `say` takes its groups, None where unmatched."""

    pattern: str
    say: Callable[..., str]

    @property
    def groups(self) -> int:
        return re.compile(self.pattern).groups


# Read top to bottom. No input is slow: runs are possessive or bounded.
RULES = [
    # addresses
    Rule(r"((?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})", say_address),
    Rule(r"((?:https?|ftp|wss?)://[^\s<>\"()]*[\w/]|www\.[^\s<>\"()]*[\w/])", say_address),
    Rule(
        r"((?<![\w.-])(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:com|org|net|io|ai|dev|edu|gov|uk)"
        r"(?:/[\w./~-]*\w)?)(?![\w-])",
        say_address,
    ),
    Rule(r"((?<!\S)[~.]{0,2}(?:/[\w.-]{1,64}){2,32})", say_address),
    # phones, dates, times
    Rule(r"((?<!\w)\+\d{1,3}(?:[ .-]?\(?\d{2,4}\)?){1,5})" + END, say_phone),
    Rule(APART + r"((?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-.]\d{4}|\d{3}-\d{4})(?![\w-])", say_phone),
    Rule(APART + r"(\d{4})-(0[1-9]|1[0-2])-" + DAY + END, say_iso_date),
    Rule(APART + r"(0?[1-9]|1[0-2])/" + DAY + r"/(\d{4})" + END, say_slash_date),
    Rule(APART + DAY + r"/(0?[1-9]|1[0-2])/(\d{4})" + END, say_slash_date),
    Rule(
        r"\b" + MONTH + r"\.? " + DAY + r"(?:st|nd|rd|th)?(?:,? (\d{4}))?(?![\w:%]|[,.]\d)",
        say_month_day,
    ),
    Rule(APART + DAY + " " + MONTH + r"\b(?:,? (\d{4})" + END + ")?", say_day_month),
    Rule(APART + r"([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))? ?" + HALF, say_time),
    Rule(APART + r"([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\w:])()", say_time),
    Rule(APART + r"(\d{1,2}) ?" + HALF, say_hour),
    # versions, money, quantities, numbers
    Rule(r"(?<![\w.])([vV])(\d{1,9}(?:\.\d{1,9}){0,8})" + END, say_version),
    Rule(APART + r"()(\d{1,9}(?:\.\d{1,9}){2,8})" + END, say_version),
    Rule(
        SIGN + r"(US)?([$£€¥₹]) ?" + NUM + r"(?: ?(thousand|million|billion|trillion"
        r"|[kKmMbBtT]n?)(?![A-Za-z]))?" + PER_UNIT + END,
        say_money,
    ),
    Rule(SIGN + NUM + "([ -]?)" + _any(UNITS) + PER_UNIT + END, say_quantity),
    Rule(NUM + PER_UNIT.removesuffix("?") + END, say_number_per),
    Rule(APART + r"(\d)' ?(\d{1,2})\"", say_height),
    Rule(APART + WHOLE + r"(?:st|nd|rd|th)" + END, say_ordinal),
    Rule(r"'?\b(\d{2,4})'?s" + END, say_plural),
    Rule(APART + _any({key: "" for key in WORDS if key[0].isdigit()}) + END, WORDS.__getitem__),
    Rule(APART + r"(?:(\d{1,4})[ -])?(\d{1,4})/(\d{1,4})(?![\w/])", say_fraction),
    Rule(SIGN + r"(\d{4})(?![\d,.]|\.\d)" + END, say_whole_number),
    Rule(SIGN + r"(\d{4})(?![\d]|[,.]\d)", say_whole_number),
    Rule(SIGN + NUM, say_number),
]
