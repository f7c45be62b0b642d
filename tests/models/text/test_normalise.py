"""Cases D12 (numbers, money, time, units), D13 (markdown, emoji) and the text of D14."""

import time
from itertools import pairwise

import pytest

from omni_speak.models.wren.text.normalise import PAUSES, normalise, spoken_text

NUMBERS = [
    ("It costs $8.75 million", "It costs eight point seven five million dollars"),
    ("at 7:45PM", "at seven forty five p.m."),
    ("65%", "sixty five percent"),
    ("2,306", "two thousand three hundred six"),
    ("15-20 C", "fifteen to twenty degrees Celsius"),
    ("v2.0.1", "version two point zero point one"),
    ("+1 555 0100", "plus one, five five five, zero one zero zero"),
    ("in 2025", "in twenty twenty five"),
    ("3 km/h", "three kilometers per hour"),
    ("0, 7, 42, 1000000", "zero, seven, forty two, one million"),
    ("1,250.5", "one thousand two hundred fifty point five"),
    ("-5 and 3.14 and .5", "minus five and three point one four and point five"),
    ("agent 007", "agent zero zero seven"),
    ("1234567890123456789", " ".join("one two three four five six seven eight nine zero".split())
     + " one two three four five six seven eight nine"),
    ("1st 2nd 3rd 21st 30th", "first second third twenty first thirtieth"),
    ("1/2, 3/4, 2½, 1 1/2", "one half, three quarters, two and a half, one and a half"),
    ("1990s, '80s", "nineteen nineties, eighties"),
    ("1905, 2000, 2009, 1066", "nineteen oh five, two thousand, two thousand nine, "
     "one thousand sixty six"),
    ("1990–1995", "nineteen ninety to nineteen ninety five"),
    ("16:9", "sixteen to nine"),
    ("H2O, MP3, A4", "H two O, MP three, ay four"),
    ("GPT-4 and COVID-19", "GPT four and COVID nineteen"),
    ("3*4 = 12, 1+1=2, 10 - 5", "three times four equals twelve, one plus one equals two, "
     "ten minus five"),
    ("1920x1080, 2x", "nineteen twenty by one thousand eighty, two times"),
    ("5'10\" tall", "five foot ten tall"),
    ("E = mc², 10^6, H₂O", "E equals mc squared, ten to the power of six, H two O"),
    ("a V8, v8, +500", "a V eight, version eight, plus five hundred"),
    ("50/50, 9/11, 120/80", "fifty fifty, nine eleven, one hundred twenty over eighty"),
    ("192.168.0.1", "one nine two dot one six eight dot zero dot one"),
    ("٣ ３ ③", "three three three"),
]  # fmt: skip

MONEY = [
    ("$6.25", "six dollars and twenty five cents"),
    ("$1, $0.99, $5.00", "one dollar, ninety nine cents, five dollars"),
    ("£2.50 and €1,000", "two pounds and fifty pence and one thousand euros"),
    ("US$5, -$3, 50¢", "five U.S. dollars, minus three dollars, fifty cents"),
    ("$5-10", "five to ten dollars"),
    ("$1 million-$2 million", "one million dollars to two million dollars"),
    ("$20/month", "twenty dollars per month"),
    ("$1.5k", "one point five thousand dollars"),
    ("20 USD", "twenty U.S. dollars"),
]

TIMES_AND_DATES = [
    ("8 a.m. and 16:30", "eight a.m. and sixteen thirty"),
    ("4:00, 16:00, 7:05 am", "four o'clock, sixteen hundred hours, seven oh five a.m."),
    ("1:30:45", "one thirty and forty five seconds"),
    ("10 a.m.–4 p.m. Mon-Fri", "ten a.m. to four p.m. Monday to Friday"),
    ("9am-5pm", "nine a.m. to five p.m."),
    ("March 5, 2024", "March fifth, twenty twenty four"),
    ("2024-03-05", "March fifth, twenty twenty four"),
    ("3/5/2024", "March fifth, twenty twenty four"),
    ("25/12/2023", "December twenty fifth, twenty twenty three"),
    ("on 5 March 2024", "on the fifth of March, twenty twenty four"),
    ("Dec. 25th", "December twenty fifth"),
    ("Jan 2024", "January twenty twenty four"),
    ("You may 5 times", "You may five times"),
]

TELEPHONES = [
    ("555-0100", "five five five, zero one zero zero"),
    ("(212) 555-0100", "two one two, five five five, zero one zero zero"),
    ("1-800-555-0199 ext. 8", "one, eight zero zero, five five five, zero one nine nine "
     "extension eight"),
    ("+44 20 7946 0958, +15550100", "plus four four, two zero, seven nine four six, "
     "zero nine five eight, plus one five five five zero one zero zero"),
    ("212-555-0100", "two one two, five five five, zero one zero zero"),
]  # fmt: skip

UNITS = [
    ("47.2 grams, 47.2 g", "forty seven point two grams, forty seven point two grams"),
    ("72°, 72°F, -5 °C", "seventy two degrees, seventy two degrees Fahrenheit, "
     "minus five degrees Celsius"),
    ("1 kg, 5 kg, 10 MB", "one kilogram, five kilograms, ten megabytes"),
    ("a 5-km run", "a five kilometer run"),
    ("9.8 m/s, 60 mph, 20 m²", "nine point eight meters per second, sixty miles per hour, "
     "twenty square meters"),
    ("3/day", "three per day"),
    ("5 μm, 2 tbsp", "five micrometers, two tablespoons"),
]  # fmt: skip

ABBREVIATIONS = [
    ("Dr. Ng met Mr. and Mrs. Lee.", "Doctor Ng met Mister and Missus Lee."),
    ("St. Louis, Elm St. and", "Saint Louis, Elm Street and"),
    ("cats, dogs, etc., e.g. mine, i.e. this vs. that",
     "cats, dogs, et cetera, for example mine, that is this versus that"),
    ("No. 5, but no. Never.", "number five, but no. Never."),
    ("approx. 10, p. 7, Vol. 2", "approximately ten, page seven, Volume two"),
    ("J. K. Rowling in the U.S.", "J K Rowling in the U.S."),
    ("the FBI and NASA in the US", "the FBI and NASA in the U.S."),
    ("HELP US NOW", "HELP US NOW"),
    ("Henry VIII, World War II, Chapter IV, Rocky III",
     "Henry the eighth, World War two, Chapter four, Rocky three"),
    ("George I think so, mix I", "George I think so, mix I"),
    ("a plan, Plan A.", "a plan, Plan ay."),
    ("C++, C#, w/ .NET 24/7", "C plus plus, C sharp, with dot net twenty four seven"),
]  # fmt: skip

ADDRESSES = [
    ("jane.doe42@example.com", "jane dot doe forty two at example dot com"),
    ("See https://www.example.org/a-b?x=1.", "See example dot org slash a dash b."),
    ("example.org, github.io", "example dot org, github dot I.O"),
    ("run main.py in /usr/local/bin", "run main dot py in slash usr slash local slash bin"),
]

SYMBOLS = [
    ("A & B @ home", "A and B at home"),
    ("#5 #tag", "number five hashtag tag"),
    ("~5, ±2, 50 %", "about five, plus or minus two, fifty percent"),
    ("x >= 3, a < b, A → B", "x is at least three, a is less than b, A to B"),
    ("and/or", "and or"),
    ("“Hello” — he said… “Well…” (aside) end?!", "Hello, he said. Well, aside, end?"),
    ("wait...what", "wait, what"),
    ("yes!!! no?!?!", "yes! no?"),
    ("café naïve ﬁne éte Straße", "cafe naive fine ete Strasse"),
    ("un\u00adder\u200bstand\u200d\ufeff", "understand"),
    ("bell\x07 null\x00 escape\x1b", "bell null escape"),
    ("don't stop 'em, dogs' rock 'n' roll", "don't stop 'em, dogs rock and roll"),
    ("α β", "alpha beta"),
    ("Hello 中文 world", "Hello world"),
]

MARKUP = [
    ("## Plan\n- **first** item\n1. `code` here\n| a | b |\n[site](https://example.org)\nDone ✅",
     "Plan. first item. one, code here. a, b. site Done"),
    ("plain text, untouched", "plain text, untouched"),
    ("Steps:\n- one\n- two\nDone", "Steps. one. two. Done"),
    ("| a | b |\n|---|:-:|\n| c | d |", "a, b. c, d"),
    ("Here:\n\n1. Go to python.org.\n2. Run `x --help`.\n\nDone! 🎉",
     "Here. one, Go to python dot org. two, Run x help. Done!"),
    ("para one\n\npara two", "para one. para two"),
    ("wrapped\nline", "wrapped line"),
    ("_it_ is ***very*** ~~bad~~ __good__ snake_case", "it is very bad good snake case"),
    ("```python\nprint(x)\n```", "print x"),
    ("(yes) or (no)", "yes, or, no"),
    ("> quoted\n\n---\n\n* [ ] task", "quoted. task"),
    ("![alt text](a_(b).png) and [ref][1] and note[^2]", "alt text and ref and note"),
    ("She <b>said</b> &amp; left<br/> :tada: :)", "She said and left"),
    ("good😀morning 👩‍👩‍👧 🇬🇧 1️⃣", "good morning one"),
    (r"not \*emphasis\*", "not emphasis"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        *NUMBERS,
        *MONEY,
        *TIMES_AND_DATES,
        *TELEPHONES,
        *UNITS,
        *ABBREVIATIONS,
        *ADDRESSES,
        *SYMBOLS,
        *MARKUP,
    ],
)
def test_table(written: str, spoken: str) -> None:
    assert spoken_text(normalise(written)) == spoken


def test_sentence_of_case_d14() -> None:
    text = "Dr. Ng paid $6.25 at 8 a.m. for 47.2 grams, e.g. tea. Then she left."
    spans = normalise(text)
    assert spoken_text(spans) == (
        "Doctor Ng paid six dollars and twenty five cents at eight a.m. "
        "for forty seven point two grams, for example tea. Then she left."
    )
    assert [text[span.start : span.end] for span in spans] == [
        *["Dr.", "Ng", "paid", "$6.25", "at", "8 a.m.", "for", "47.2", "grams", ",", "e.g."],
        *["tea", ".", "Then", "she", "left", "."],
    ]


def test_spans_hold_no_space_at_their_ends() -> None:
    text = "3 * 4, 10 a.m. – 4 p.m., 10 - 5"
    words = [text[s.start : s.end] for s in normalise(text) if not s.is_pause]
    assert words == ["3", "*", "4", "10 a.m.", "–", "4 p.m.", "10", "-", "5"]


def test_spans_hold_through_markup_and_folding() -> None:
    text = "## Der **Straßen**bau\u200b, [ein](http://x.org) ﬁne café ½"
    words = [text[s.start : s.end] for s in normalise(text) if not s.is_pause]
    assert words == ["Der", "Straßen**bau", "ein", "ﬁne", "café", "½"]


@pytest.mark.parametrize(
    "text", ["", " \t\n", "?!...", "😀", "**", "\u200b\u200d", "%", "---", "中"]
)
def test_nothing_to_say(text: str) -> None:
    assert normalise(text) == []


def test_pauses_never_lead_and_never_pile_up() -> None:
    spans = normalise('...(well), [no] -- yes?!, "so": end...')
    assert not spans[0].is_pause
    assert not any(a.is_pause and b.is_pause for a, b in pairwise(spans))
    assert all(span.spoken in PAUSES for span in spans if span.is_pause)


HOSTILE = [
    "1", "1,", "1.", "1/", "1:", "1-", "1 ", "1e", "+1 ", "$1", "v1.", "a", "A", "a-", "a.", "a@",
    "a.com/", "/a", "http://", "~/", "(", "()", "[", "[x](", "[x]((b)", "[^", "<a ", "<!--", "_",
    "a_", "*", "5*", "-", "- ", "=-", "| ", "x\n-", "\n", "```\n", ":a", "&", ".", "'", " ", "é",
    "😀", "\u0301", "Jan 1 ", "1 Jan ", "Henry V", "US ", "St. ", "I", "\u00bd", "#", ">", "\\",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("frame", ["{}", "5{}y\n"])
def test_no_slow_input(unit: str, frame: str) -> None:
    text = frame.format((unit * 10_000)[:10_000])

    def seconds() -> float:
        start = time.process_time()
        normalise(text)
        return time.process_time() - start

    # 10,000 words to say take 50 ms on a quiet core; what is quadratic takes seconds.
    assert any(seconds() < 0.4 for _ in range(3))
