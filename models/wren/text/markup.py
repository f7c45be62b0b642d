"""Marked-up text → plain text, each character still knowing where it was written.

Markdown, HTML tags, emoji and invisible characters go; what they wrap stays. The edits are same
length (`GONE` takes the place of what goes), so offsets hold until one last pass drops it.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache

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
}
LINE_BREAKS = "\n\r\v\f\x85\u2028\u2029"


@lru_cache(maxsize=4096)
def plain_character(char: str) -> str:
    """The ASCII reading of one character where it has one; itself in other scripts."""
    if char in PLAIN:
        return PLAIN[char]
    if char.isspace():
        return " "
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    category = unicodedata.category(char)
    if category in ("Cc", "Cf", "Mn", "Me"):
        return ""
    if category in ("So", "Sk", "Co", "Cn", "Cs") and char not in "^`":
        return " "
    if char.isascii():
        return char
    parts = unicodedata.normalize("NFKD", char)
    letters = "".join(part for part in parts if not unicodedata.combining(part))
    if "⁄" in letters:  # ½, also in 2½
        return " " + letters.replace("⁄", "/")
    return letters


def plain_text(text: str) -> tuple[str, list[int]]:
    """The text without markup, and for each of its characters the offset it was written at."""
    text = "".join("\n" if char in LINE_BREAKS else char for char in text)
    text = text.replace(GONE, " ").replace(STOP, " ")
    for pattern, mark in MARKUP:
        text = pattern.sub(lambda match, mark=mark: _without(match, mark), text)  # type: ignore[misc]
    text = ENTITY.sub(_entity, text)
    chars: list[str] = []
    offsets: list[int] = []
    for offset, char in enumerate(text):
        if char != GONE:
            plain_char = plain_character(char)
            if char in SUPERSCRIPT and offset and text[offset - 1] in SUPERSCRIPT:
                plain_char = plain_char.lstrip("^")
            for plain in plain_char:
                chars.append(plain)
                offsets.append(offset)
    return "".join(chars), offsets


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
