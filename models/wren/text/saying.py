"""How what is written is said: the groups of a rule's pattern → words.

Each function takes the groups of the patterns it stands beside in `normalise.SECTIONS`, as they are
written; None is a group that was not there. What says nothing returns "".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from omni_speak.models.wren.text import numbers
from omni_speak.models.wren.text.tables import (
    ADDRESS_MARKS,
    COUNTRIES,
    CURRENCIES,
    CURRENCY_CODES,
    DAYS,
    MAGNITUDES,
    MONTHS,
    PER,
    ROMAN_DIGITS,
    SPELLED_IN_ADDRESSES,
    UNITS,
)

LONGEST_WORD = 32  # longer than English needs; more is read in pieces


def as_written(written: str) -> str:
    return written


def silent() -> str:
    return ""


def always(spoken: str) -> Callable[[], str]:
    return lambda: spoken


# --- numbers --------------------------------------------------------------------------------


def say_number(sign: str | None, value: str) -> str:
    return _sign(sign) + numbers.number(value)


def say_year(sign: str | None, value: str) -> str:
    return _sign(sign) + (numbers.number(value) if sign else numbers.year_or_number(value))


def say_grouped(value: str) -> str:
    """1 000 000 and 1.000.000 → one million."""
    return numbers.number(re.sub(r"\D", "", value))


def say_scientific(sign: str | None, value: str, exponent: str) -> str:
    power = "minus " * exponent.startswith("-") + numbers.number(exponent.lstrip("+-"))
    return f"{_sign(sign)}{numbers.number(value)} times ten to the power of {power}"


def say_ordinal(value: str) -> str:
    whole = value.replace(",", "")
    return numbers.ordinal(int(whole)) if len(whole) <= numbers.LONGEST else numbers.number(value)


def say_plural(value: str) -> str:
    """1990s → nineteen nineties; 100s → hundreds."""
    said = numbers.year_or_number(value)
    rounded = value.replace(",", "").strip("0") == "1"
    return numbers.plural(said.removeprefix("one ") if rounded else said)


def say_fraction(whole: str | None, numerator: str, denominator: str) -> str:
    part = numbers.fraction(int(numerator), int(denominator))
    return f"{numbers.number(whole)} and {part.replace('one ', 'a ', 1)}" if whole else part


def say_division(left: str, right: str) -> str:
    return f"{numbers.number(left)} divided by {numbers.number(right)}"


def say_ratio(left: str, right: str) -> str:
    return f"{numbers.number(left)} to {numbers.number(right)}"


def say_millions(value: str, scale: str) -> str:
    return f"{numbers.number(value)} {MAGNITUDES[scale.lower()]}"


def say_digits(written: str) -> str:
    return numbers.digits(written)


def say_phone(written: str) -> str:
    """Digit by digit, with a breath between the groups."""
    said = ", ".join(numbers.digits(group) for group in re.findall(r"\d+", written))
    return f"plus {said}" if written.startswith("+") else said


def say_toll_free(prefix: str) -> str:
    """1-800, before letters."""
    one, _, rest = prefix.rpartition("-")
    return f"{numbers.digits(one)} {numbers.cardinal(int(rest))},".lstrip()


def say_code_name(value: str) -> str:
    """Three or four digits after letters or a kind of vehicle: 747 → seven forty seven."""
    hundreds, rest = divmod(int(value), 100)
    if not hundreds or not rest or (rest < 10 and not hundreds % 10):
        return numbers.number(value)
    return f"{numbers.cardinal(hundreds)} {numbers.two_digits(rest)}"


def say_model(name: str, variant: str) -> str:
    """737-800 → seven thirty seven eight hundred."""
    return f"{say_code_name(name)} {numbers.number(variant)}"


def say_video_lines(lines: str, scan: str) -> str:
    """1080p → ten eighty p."""
    pairs = f"{numbers.cardinal(int(lines[:-2]))} {numbers.two_digits(int(lines[-2:]))}"
    return f"{pairs} {scan}"


def say_version(v: str | None, dotted: str) -> str:
    said = " point ".join(numbers.number(part) for part in dotted.split("."))
    return f"version {said}" if v else said


def say_release(name: str, dotted: str) -> str:
    return f"{name} {say_version(None, dotted)}"


# --- money and quantities -------------------------------------------------------------------


def say_money(
    sign: str | None,
    country: str | None,
    symbol: str,
    inner_sign: str | None,
    value: str,
    scale: str | None,
    per: str | None,
) -> str:
    amount = _money(value, scale, *_currency(country, symbol))
    return _sign(sign or inner_sign) + amount + _per(per)


def say_money_after(sign: str | None, value: str, scale: str | None, symbol: str) -> str:
    return _sign(sign) + _money(value, scale, *_currency(None, symbol))


def say_money_code(code: str, value: str, scale: str | None) -> str:
    return _money(value, scale, *_currency(*CURRENCY_CODES[code]))


def say_money_code_after(sign: str | None, value: str, scale: str | None, code: str) -> str:
    return _sign(sign) + say_money_code(code, value, scale)


def say_money_range(symbol: str, low: str, high: str, scale: str | None) -> str:
    return f"{numbers.number(low)} to {_money(high, scale, *_currency(None, symbol))}"


def say_money_comma(symbol: str, value: str) -> str:
    return say_money_after(None, _with_point(value), None, symbol)


def say_money_comma_after(value: str, symbol: str) -> str:
    return say_money_comma(symbol, value)


def say_money_code_comma(value: str, code: str) -> str:
    return say_money_code(code, _with_point(value), None)


def say_quantity_comma(value: str, joint: str, unit: str, per: str | None) -> str:
    return say_quantity(None, _with_point(value), joint, unit, per)


def say_price_of(symbol: str, value: str, scale: str | None) -> str:
    """A price that describes what follows: a $5 bill."""
    one, _, one_cent, _ = _currency(None, symbol)
    return _money(value, scale, one, one, one_cent, one_cent)


def say_quantity(sign: str | None, value: str, joint: str, unit: str, per: str | None) -> str:
    one, many = UNITS[unit]
    if joint == "-":  # a 5-km run
        many = one
    return _sign(sign) + _count(value, one, many) + _per(per)


def say_quantity_of(value: str, unit: str) -> str:
    """A quantity that describes what follows: a 5 km run."""
    return f"{numbers.number(value)} {UNITS[unit][0]}"


def say_unit_per(unit: str, per: str) -> str:
    return UNITS[unit][1] + _per(per)


def say_inches(value: str) -> str:
    return _count(value, "inch", "inches")


def say_inch_of(value: str) -> str:
    return f"{numbers.number(value)} inch"


def say_rate(value: str, per: str) -> str:
    return numbers.number(value) + _per(per)


def say_height(feet: str, inches: str) -> str:
    return f"{numbers.number(feet)} foot {numbers.number(inches)}"


def say_feet_and_inches(feet: str, inches: str) -> str:
    return f"{_count(feet, 'foot', 'feet')} {_count(inches, 'inch', 'inches')}"


# --- times and dates ------------------------------------------------------------------------


def say_time(hour: str, minute: str, second: str | None, half: str | None) -> str:
    said = numbers.cardinal(int(hour))
    if int(minute):
        said += f" {numbers.two_digits(int(minute))}"
    elif not half:
        said += " o'clock" if 1 <= int(hour) <= 12 else " hundred hours"
    if second and second.strip("0."):
        said += f" and {_count(second.lstrip('0'), 'second', 'seconds')}"
    return said + _half(half)


def say_hour(hour: str, half: str) -> str:
    return numbers.cardinal(int(hour)) + _half(half)


def say_clock(hour: str, minute: str, half: str | None = None) -> str:
    return say_time(hour, minute, None, half)


def say_short_time(hour: str, minute: str | None, half: str) -> str:
    return say_time(hour, minute or "00", None, half)


def say_duration(hours: str | None, minutes: str, seconds: str | None) -> str:
    parts = [(hours, "hour"), (minutes, "minute"), (seconds, "second")]
    return " ".join(_count(str(int(count)), unit, f"{unit}s") for count, unit in parts if count)


def say_seconds(value: str) -> str:
    return _count(value, "second", "seconds")


def say_month_day(month: str, day: str, last_day: str | None, year: str | None) -> str:
    last = f" to {numbers.ordinal(int(last_day))}" if last_day else ""
    return f"{_month(month)} {numbers.ordinal(int(day))}{last}{_of_year(year)}"


def say_day_month(
    the: str | None, day: str, last_day: str | None, month: str, year: str | None
) -> str:
    article = "" if the is not None else "the "
    last = f" to {numbers.ordinal(int(last_day))}" if last_day else ""
    return f"{article}{numbers.ordinal(int(day))}{last} of {_month(month)}{_of_year(year)}"


def say_weekday(day: str) -> str:
    return DAYS[day]


def say_days(first: str, last: str) -> str:
    return f"{DAYS[first]} to {DAYS[last]}"


def say_months(first: str, last: str) -> str:
    return f"{_month(first)} to {_month(last)}"


def say_iso_date(year: str, month: str, day: str) -> str:
    return say_month_day(MONTHS[int(month) - 1], day, None, year)


def say_iso_month(year: str, month: str) -> str:
    return f"{MONTHS[int(month) - 1]} {numbers.year(int(year))}"


def say_month_of_year(month: str, year: str) -> str:
    return say_iso_month(year, month)


def say_iso_time(year: str, month: str, day: str, hour: str, minute: str, zone: str | None) -> str:
    said = f"{say_iso_date(year, month, day)}, {say_clock(hour, minute)}"
    return f"{said} UTC" if zone else said


def say_month_first(month: str, day: str, year: str) -> str:
    """3/5/2024; a year of two digits is one of 1950 to 2049."""
    if len(year) == 2:
        year = ("19" if year >= "50" else "20") + year
    return say_iso_date(year, month, day)


def say_day_first(day: str, month: str, year: str) -> str:
    return say_month_first(month, day, year)


# --- addresses, names, words ----------------------------------------------------------------


def say_address(written: str) -> str:
    """An e-mail address, a URL or a path as a person reads it out: no scheme, no query."""
    address = re.sub(r"^(?:[a-z]+://|mailto:)?(?:www\.)?|[?#].*", "", written).rstrip("/")
    said = []
    for part in re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]", address):
        if part.isdecimal():
            said.append(numbers.number(part) if len(part) < 3 else numbers.digits(part))
        elif part in SPELLED_IN_ADDRESSES:
            said.append(".".join(part.upper()))
        elif part.isalpha():
            said.append(say_word(part))
        elif part in ADDRESS_MARKS:
            said.append(ADDRESS_MARKS[part])
    return " ".join(said)


def say_ipv6(written: str) -> str:
    """fe80::1 → F E eight zero, double colon, one."""
    said = []
    for part in re.findall("::|:|[^:]+", written):
        said.append({"::": "double colon", ":": "colon"}.get(part) or say_letters(part))
    return " ".join(said)


def say_mac(written: str) -> str:
    """Pair by pair, with a breath between them."""
    return ", ".join(say_letters(pair) for pair in re.split("[:-]", written))


def say_letters(written: str) -> str:
    """Letters and digits one by one: SO → S O."""
    return " ".join(
        numbers.digits(char) if char.isdecimal() else {"A": "ay"}.get(char, char)
        for char in written.upper()
    )


def say_hashtag(tag: str) -> str:
    """#OpenSource → hashtag Open Source."""
    return " ".join(["hashtag", *map(say_word, re.findall("[A-Z]?[a-z]+|[A-Z]+(?![a-z])", tag))])


def say_direction(letter: str) -> str:
    return {"N": "North", "S": "South", "E": "East", "W": "West"}[letter]


def say_house_number(number: str, direction: str) -> str:
    return f"{numbers.year_or_number(number)} {say_direction(direction)}"


def say_drive(name: str) -> str:
    return f"{name} Drive"


def say_verse(book: str, chapter: str, verse: str, last: str | None) -> str:
    said = f"{book} {numbers.number(chapter)} {numbers.number(verse)}"
    return f"{said} to {numbers.number(last)}" if last else said


def say_regnal(name: str, roman: str) -> str:
    return f"{name} the {numbers.ordinal(_roman(roman))}"


def say_numbered(name: str, roman: str) -> str:
    return f"{name} {numbers.cardinal(_roman(roman))}"


def say_roman(roman: str) -> str:
    return numbers.cardinal(_roman(roman))


def say_roman_ordinal(roman: str) -> str:
    return numbers.ordinal(_roman(roman))


def say_roman_year(roman: str) -> str:
    return numbers.year(_roman(roman))


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


def _with_point(value: str) -> str:
    """A number with a decimal comma: 1.234,56 → 1234.56."""
    return value.replace(".", "").replace(",", ".")


def _sign(sign: str | None) -> str:
    return {"-": "minus ", "+": "plus "}[sign] if sign else ""


def _count(value: str, one: str, many: str) -> str:
    return f"{numbers.number(value)} {one if value == '1' else many}"


def _currency(country: str | None, symbol: str) -> tuple[str, str, str, str]:
    """One and many of the currency, one and many of its hundredth part."""
    one, many, one_cent, many_cents = CURRENCIES[symbol]
    if country:
        one, many = f"{COUNTRIES[country]} {one}", f"{COUNTRIES[country]} {many}"
    return one, many, one_cent, many_cents


def _money(
    value: str, scale: str | None, one: str, many: str, one_cent: str, many_cents: str
) -> str:
    whole, _, cents = value.partition(".")
    if scale:
        return f"{numbers.number(value)} {MAGNITUDES.get(scale.lower(), scale)} {many}"
    if len(cents) != 2:
        return _count(value, one, many)
    if not int(cents):
        return _count(whole or "0", one, many)
    amount = _count(str(int(cents)), one_cent, many_cents)
    return f"{_count(whole, one, many)} and {amount}" if whole.strip("0") else amount


def _per(per: str | None) -> str:
    return f" per {PER[per]}" if per else ""


def _half(half: str | None) -> str:
    return f" {half.lower()}.m." if half else ""


def _month(written: str) -> str:
    return next(month for month in MONTHS if month.startswith(written[:3]))


def _of_year(year: str | None) -> str:
    return f", {numbers.year_or_number(year)}" if year else ""


def _roman(numeral: str) -> int:
    values = [ROMAN_DIGITS[letter] for letter in numeral.upper()]
    return sum(-v if v < max(values[i:]) else v for i, v in enumerate(values))
