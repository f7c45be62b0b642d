"""Marked-up text → plain text, each character still knowing where it was written.

Markdown, HTML tags, emoji and invisible characters go; what they wrap stays. The edits are same
length (`GONE` takes the place of what goes), so offsets hold until one last pass drops it.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache

from anyascii import anyascii

GONE = "\0"
STOP = "\1"  # a line break where a heading, a list item, a table row or a paragraph ends

LINE = rf"(?<![^\n{STOP}])"
LINE_END = rf"(?=[\n{STOP}]|\Z)"
LIST_MARK = r"[ \t]*(?:[-*+•‣◦][ \t]++|#{1,6}[ \t]++|>++(?![\d$£€])[ \t]*+|\|)"
NUMBER_MARK = r"[ \t]*\d{1,3}[.)][ \t]"

# (pattern, what takes its place): group 1 stays; the rest goes, and the last character that goes
# leaves the second column. No input is slow: neighbouring quantifiers match different characters,
# or are possessive or bounded.
MARKUP = [
    (re.compile(pattern), mark)
    for pattern, mark in [
        (rf"{LINE}[ \t]*(?:```|~~~)[\w+-]*[ \t]*{LINE_END}", ""),  # code fence
        (rf"{LINE}[ \t|:]*[-=*_]{{2}}[-=*_ \t|:+]*{LINE_END}", ""),  # rule, table separator
        (r"\n(?=[ \t]*\n)", STOP),  # end of a paragraph
        (rf"\n(?={LIST_MARK}|{NUMBER_MARK})", STOP),  # what stands above a list
        (rf"{LINE}{LIST_MARK}(?:\[[ xX]\][ \t])?([^\n{STOP}]*+)\n", STOP),
        (rf"{LINE}{LIST_MARK}(?:\[[ xX]\][ \t])?", ""),
        (rf"\|[ \t]*+{LINE_END}", ""),  # end of a table row
        (rf"{LINE}([ \t]*\d{{1,3}})[.)](?=[ \t])", ","),  # 1. item
        (r"<!--[^>\n]{0,300}-->", ""),
        (r"</(?:p|div|li|tr|h[1-6]|blockquote)>|<br ?/?>", STOP),
        (r"<((?:https?://|mailto:)[^<>\s]{1,2000})>", ""),
        (r"</?[A-Za-z][A-Za-z0-9]*(?:[ \t][^<>\n]{0,300})?/?>", ""),  # HTML tag
        (r"!?\[([^\[\]\n]{0,300})\]\((?:[^()\n]|\([^()\n]*\))*\)", ""),  # [text](target)
        (r"!?\[([^\[\]\n]{1,300})\]\[[^\[\]\n]{0,100}\]", ""),  # [text][reference]
        (rf"{LINE}\[[^\[\]\n]{{1,100}}\]:[ \t]*+\S++[^\n{STOP}]*+", ""),  # [reference]: target
        (r"\[\^[^\[\]\n]{1,50}\]:?", ""),  # footnote
        (r"(?<=[.,;:!?])\[\d{1,3}\]", ""),  # citation
        (r"(?<![\w:]):[a-z][a-z0-9_+-]{1,40}:(?!\w)", ""),  # :emoji:
        (r"(?<!\S)[:;=]['-]?[()DPp/|\\](?!\S)", ""),  # emoticon
        # *emphasis*, though 3 * 4 is a product
        (r"(?<![\d*])(?<!\d )\*++|(?<=\d)\*++(?!\d)|(?<=\d )\*++(?! \d)", ""),
        (r"(?<!\w)_++(?=\S)|(?<=[^\s_])_++(?!\w)", ""),  # _emphasis_
        (r"`+|~~+", ""),
        (r"\\(?=[*_`#\[\]()~|>$.!-])", ""),  # escaped markup
    ]
]

ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,10});")
SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"

# Characters that compatibility decomposition does not bring to ASCII as a reader would.
PLAIN = {
    STOP: " . ",
    **dict.fromkeys("‘’‛ʼ′＇´", "'"),
    **dict.fromkeys("“”„‟″«»‹›", '"'),
    **dict.fromkeys("‐‑⁃", "-"),
    **dict.fromkeys("–‒―⸺﹘", "–"),
    **dict.fromkeys("−➖", "-"),
    **dict.fromkeys("™®℠", ""),
    **dict.fromkeys("→⇒➡⟶➜", " → "),
    "—": "—",
    "º": "°",
    "˚": "°",
    "°": "°",
    **{char: f"^{plain}" for char, plain in zip(SUPERSCRIPT, "0123456789-", strict=True)},
    "©": " copyright ",
    "№": "No. ",
    "℃": "°C",
    "℉": "°F",
    "⁄": "/",
    "≠": "≠",
    "₤": "£",
    "✕": "×",
    "✖": "×",
    "➕": "+",
    "ß": "ss",
    "ẞ": "SS",
    "æ": "ae",
    "Æ": "Ae",
    "œ": "oe",
    "Œ": "Oe",
    "ø": "o",
    "Ø": "O",
    "ł": "l",
    "Ł": "L",
    "đ": "d",
    "Đ": "D",
    "ð": "th",
    "Ð": "Th",
    "þ": "th",
    "Þ": "Th",
    "ı": "i",
    "¿": "",
    "¡": "",
    **dict.fromkeys("。｡।॥።۔", " . "),
    "؟": "? ",
    **dict.fromkeys("、､،؛፣・", ", "),
}
NAMED_LETTER = re.compile(r"[\u0370-\u03ff\u0400-\u045f]")
"""Greek and Cyrillic: a letter alone is said by its name, as in "α and β"."""
IDEOGRAPH = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
KANA = re.compile(r"[\u3040-\u30ff]")
"""Their marks are no accents: で is de, て is te."""
FOREIGN_WORD = re.compile(r"(?<![A-Za-z])[^\W\d_A-Za-z]+(?![A-Za-z])")
UNREADABLE = " character "
"""A word of letters that have no Latin ones."""
LINE_BREAKS = "\n\r\v\f\x85\u2028\u2029"


@lru_cache(maxsize=4096)
def plain_character(char: str) -> str:
    """The Latin letters of one character; itself where that is a Greek or Cyrillic letter."""
    if char in PLAIN:
        return PLAIN[char]
    if char.isspace():
        return " "
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    category = unicodedata.category(char)
    if category in ("Mn", "Mc"):  # a vowel in some scripts, an accent in others
        return _latin(char)
    if category in ("Cc", "Cf", "Me"):
        return ""
    if category in ("So", "Sk", "Co", "Cn", "Cs") and char not in "^`":
        return " "
    if char.isascii():
        return char
    parts = unicodedata.normalize("NFKD", char)
    letters = "".join(part for part in parts if not unicodedata.combining(part))
    if "⁄" in letters:  # ½, also in 2½
        return " " + letters.replace("⁄", "/")
    if letters.isascii() or not letters.isalnum() or NAMED_LETTER.fullmatch(letters):
        return letters
    latin = _latin(char if KANA.match(char) else letters)
    return f" {latin} " if IDEOGRAPH.match(letters) else latin


def _is_letter(char: str) -> bool:
    return unicodedata.category(char) in ("Lo", "Lu", "Ll")


def _latin(letters: str) -> str:
    return "".join(char for char in anyascii(letters) if char.isalnum())


def plain_text(text: str) -> tuple[str, list[int]]:
    """The text without markup, and for each of its characters the offset it was written at."""
    text = "".join("\n" if char in LINE_BREAKS else char for char in text)
    text = text.replace(GONE, " ").replace(STOP, " ")
    for pattern, mark in MARKUP:
        text = pattern.sub(lambda match, mark=mark: _without(match, mark), text)  # type: ignore[misc]
    text = ENTITY.sub(_entity, text)
    latin = _foreign_words(text)
    chars: list[str] = []
    offsets: list[int] = []
    for offset, char in enumerate(text):
        if char != GONE:
            plain_char = latin[offset] if offset in latin else plain_character(char)
            if char in SUPERSCRIPT and offset and text[offset - 1] in SUPERSCRIPT:
                plain_char = plain_char.lstrip("^")
            for plain in plain_char:
                chars.append(plain)
                offsets.append(offset)
    return "".join(chars), offsets


def _foreign_words(text: str) -> dict[int, str]:
    """Words in other scripts that the characters alone do not tell: those of Greek and Cyrillic
    letters, and those without a letter that has a Latin one. By offset."""
    latin: dict[int, str] = {}
    if text.isascii():
        return latin
    for word in FOREIGN_WORD.finditer(text):
        letters = [_latin(char) for char in word[0]]
        named = NAMED_LETTER.search(word[0])
        if named and len(letters) > 1 and any(letters):
            latin |= zip(range(word.start(), word.end()), letters, strict=True)
        elif not named and not any(letters) and any(map(_is_letter, word[0])):
            latin[word.start()] = UNREADABLE
    return latin


def _without(match: re.Match[str], mark: str) -> str:
    """The match at its own length, with only group 1 and the mark left."""
    kept_from, kept_to = match.span(1) if match.re.groups else (match.end(), match.end())
    before, after = kept_from - match.start(), match.end() - kept_to
    kept = match.string[kept_from:kept_to]
    if not mark:
        return GONE * before + kept + GONE * after
    if after:
        return GONE * before + kept + GONE * (after - len(mark)) + mark
    return GONE * (before - len(mark)) + mark


def _entity(match: re.Match[str]) -> str:
    """The character that &amp; and its like stand for, at their own length."""
    char = html.unescape(match[0])
    return char + GONE * (len(match[0]) - 1) if len(char) == 1 else match[0]
