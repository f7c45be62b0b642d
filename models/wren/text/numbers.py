"""Numbers in American English words, without hyphens: each word keeps its own stress."""

from __future__ import annotations

# fmt: off
ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)
# fmt: on
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SCALES = ("", " thousand", " million", " billion", " trillion")
IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
LONGEST = 3 * len(SCALES)  # digits; a longer number is read digit by digit


def cardinal(value: int) -> str:
    """2306 → two thousand three hundred six."""
    if value < 20:
        return ONES[value]
    if value < 100:
        tens, ones = divmod(value, 10)
        return TENS[tens] + (f" {ONES[ones]}" if ones else "")
    if value < 1000:
        hundreds, rest = divmod(value, 100)
        return f"{ONES[hundreds]} hundred" + (f" {cardinal(rest)}" if rest else "")
    groups = []
    for scale in SCALES:
        value, group = divmod(value, 1000)
        if group:
            groups.append(cardinal(group) + scale)
    return " ".join(reversed(groups))


def ordinal(value: int) -> str:
    """21 → twenty first."""
    rest, space, last = cardinal(value).rpartition(" ")
    if last.endswith("y"):
        last = last[:-1] + "ie"
    return rest + space + IRREGULAR_ORDINALS.get(last, last + "th")


def year(value: int) -> str:
    """1905 → nineteen oh five; 2009 → two thousand nine; 2025 → twenty twenty five."""
    century, rest = divmod(value, 100)
    if not 1100 <= value < 2100 or 2000 <= value < 2010:
        return cardinal(value)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {two_digits(rest)}"


def two_digits(value: int) -> str:
    """The second half of a year or a time: 5 → oh five."""
    return f"oh {ONES[value]}" if value < 10 else cardinal(value)


def digits(text: str) -> str:
    """555 → five five five."""
    return " ".join(ONES[int(digit)] for digit in text if digit.isdecimal())


def number(text: str) -> str:
    """A number as written, with thousands separators and decimals: 1,250.5."""
    whole, _, decimals = text.replace(",", "").partition(".")
    if len(whole) > LONGEST or (len(whole) > 1 and whole.startswith("0")):
        words = digits(whole)
    else:
        words = cardinal(int(whole)) if whole else ""
    return f"{words} point {digits(decimals)}".strip() if decimals else words


def year_or_number(text: str) -> str:
    """A bare number of four digits reads as a year where it could be one."""
    return year(int(text)) if len(text) == 4 and text[0] != "0" else number(text)


def plural(words: str) -> str:
    """nineteen ninety → nineteen nineties."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith(("x", "s")) else "s")


def fraction(numerator: int, denominator: int) -> str:
    """3/4 → three quarters; 50/50 → fifty fifty; 120/80 → one hundred twenty over eighty."""
    if not (0 < numerator < denominator and (denominator <= 10 or denominator in (16, 100))):
        between = " " if max(numerator, denominator) < 100 else " over "
        return cardinal(numerator) + between + cardinal(denominator)
    part = {2: "half", 4: "quarter"}.get(denominator) or ordinal(denominator)
    if numerator > 1:
        part = "halves" if denominator == 2 else part + "s"
    return f"{cardinal(numerator)} {part}"
