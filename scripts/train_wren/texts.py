"""Sentences to train on: WordNet's examples and glosses, and conversational templates."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

NAMES = (
    "John Mary Alice Robert Emma David Sarah Michael Laura Peter Anna James Linda Kevin Susan "
    "Daniel Karen Thomas Nancy Paul Rachel Steven Julia Mark Ahmed Olga Chen Maria Carlos Priya "
    "Smith Johnson Brown Garcia Miller Wilson Taylor Anderson Hughes Cooper"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday today tomorrow".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
THINGS = (
    "order,appointment,account,package,invoice,reservation,ticket,delivery,payment,subscription,"
    "password,request,question,flight,table,phone,computer,car,house,meeting,message,room,bill,"
    "address,recipe,calendar,document,refund,insurance,prescription,key,coffee,dinner,project"
).split(",")
PLACES = (
    "London,Paris,New York,Chicago,Boston,Seattle,Texas,California,Berlin,Madrid,Tokyo,Canada,"
    "the airport,the office,the station,the hotel,the hospital,the store,the library,the bank,"
    "the kitchen,the second floor,the main street,the other side of the river"
).split(",")
TEMPLATES = """
Hello, how can I help you today?
Hi {name}, how are you?
Hello {name}, nice to meet you.
Sure, let me check that for you.
One moment please.
Thank you for calling {place}.
Could you repeat that?
Good morning!
Good afternoon, this is {name} speaking.
Your {thing} number is {n}.
The meeting is at {h} {ap}.
It will cost {n} dollars and {n2} cents.
That comes to {n} dollars.
Call me at {digits}, {digits}.
You can reach us at {digits}.
The date is {month} {d}, {year}.
Yes.
No.
Okay.
I see.
Goodbye!
Please hold the line.
There are {n} items in your cart.
What is your name?
It is {n2} degrees outside.
I am sorry to hear that.
That sounds great!
Let's get started.
Are you still there?
Your {thing} will arrive on {day}, {month} {d}.
I can't find your {thing}.
Would you like to change your {thing}?
Can you tell me more about the {thing}?
We'll be in {place} on {day}.
How do I get to {place}?
The {thing} is ready, {name}.
Do you want to cancel the {thing}?
Please spell your last name.
My code is {l}, {l}, {l}, {dg}, {dg}.
That's {l} as in {name}.
The temperature in {place} is {n2} degrees.
It's {h} {n2} {ap}.
I'll call you back in {n2} minutes.
You're welcome, {name}.
Is there anything else I can help you with?
I don't know.
What do you think about the {thing}?
Let me think about it.
Here is what I found about {word}.
Yes, of course.
No problem at all.
Wait a second.
Have a nice day!
See you on {day}.
{n} plus {n2} is {n}.
Turn left, then go straight for {n2} miles.
Your balance is {n} dollars.
The train to {place} leaves at {h} {n2}.
{name} and {name} are coming to {place}.
Please press {dg}, or say {word}.
Did you say {word}?
I said {word}, not {word}.
Right.
Great, thanks!
Sorry, I didn't catch that.
{digits}.
{n}.
{name}.
{day}.
{word}.
{word} {word}.
My email is {name} at {word} dot com.
The answer is {word}.
Where did {name} put the {thing}?
Why is the {thing} in {place}?
When does {name} leave for {place}?
Who is going to pay for the {thing}?
Which {thing} do you like best?
How many people are in {place}?
How long does it take to get to {place}?
Could you send the {thing} to {name} before {day}?
I would like a {thing} for {n2} people, please.
I think {name} was in {place} last {month}.
She told me that the {thing} was too expensive.
He said he would bring the {thing} in half an hour.
They were waiting for the {thing} near {place}.
We need to talk about the {thing} before {name} comes.
If you have a {thing}, please tell me now.
I have never been to {place}, but {name} has.
Don't forget your {thing}, {name}!
Nobody knows where the {thing} went.
My {thing} stopped working this morning.
I can do that for you, but it will take about {n2} minutes.
Well, {word} is one of those things that I never really understood.
Okay, so first we go to {place}, and then we look for the {thing}.
The first thing is {word}, the second is {word}, and the third is {word}.
Let me read that back to you: {digits}, then {l}, {l}.
You have {n2} new messages.
Chapter {n2}, page {n}.
In {year}, {name} moved to {place}.
It happened on the {month} {d}, {year}.
Is it {word}, or {word}?
I'm afraid the {thing} isn't available until {day}.
What's the weather like in {place} {day}?
It's going to be cold and rainy in {place}, with {n2} degrees.
Please turn on the lights in {place}.
Set a timer for {n2} minutes.
Remind me to buy {word} and {word} on {day}.
The {thing} costs {n2} dollars more than the {thing}.
A, B, C, {l}, {l}, {l}.
Um, I guess the {word} would be fine.
Oh, really? I had no idea.
Thanks, {name}. That's very kind of you.
{word}, {word}, and {word}.
{word}, {word}, {word}, {word}.
{word}? {word}!
""".strip().splitlines()
ENDS = ".!?"


class Corpus:
    """Deterministic sentences by index: `sentence(i)` never depends on what came before."""

    def __init__(self, wordnet: Path, held_out: set[str], seed: int) -> None:
        rng = random.Random(seed)
        examples, glosses = _wordnet(wordnet)
        held = {_bare(text) for text in held_out}
        self._held = held
        self._examples = [text for text in examples if _bare(text) not in held]
        self._glosses = [text for text in glosses if _bare(text) not in held]
        rng.shuffle(self._examples)
        rng.shuffle(self._glosses)
        words = {word for text in glosses + examples for word in re.findall(r"[a-z]{3,}", text)}
        self._words = sorted(words)
        self._seed = seed

    def sentence(self, index: int) -> str:
        """The text of utterance `index`, never one of the held-out sentences."""
        rng = random.Random(index * 7919 + self._seed)
        while True:
            text = self._draw(rng, index)
            if _bare(text) not in self._held:
                return text

    def _draw(self, rng: random.Random, index: int) -> str:
        first = self._examples[2 * index % len(self._examples)]
        second = self._examples[(2 * index + 1) % len(self._examples)]
        kind = rng.random()
        if kind < 0.18:
            text = self._template(rng)
        elif kind < 0.22:
            text = f"{self._template(rng)} {self._template(rng)}"
        elif kind < 0.27:
            text = " ".join(rng.choice(self._examples).split()[: rng.randint(1, 3)])
        elif kind < 0.40:
            text = self._glosses[index % len(self._glosses)]
        elif kind < 0.55:
            joint = rng.choice([", ", ". ", "; ", ", and ", "? "])
            text = first.rstrip(".!?;:, ") + joint + second
        else:
            text = first
        text = text.strip()
        if rng.random() < 0.85:
            text = text[:1].upper() + text[1:]
        return text if text[-1] in ENDS else text + rng.choice("....?!")

    def _template(self, rng: random.Random) -> str:
        fill: dict[str, Callable[[], str]] = {
            "n": lambda: str(rng.randint(*rng.choice([(0, 20), (10, 100), (100, 9999)]))),
            "n2": lambda: str(rng.randint(2, 99)),
            "h": lambda: str(rng.randint(1, 12)),
            "ap": lambda: rng.choice(["AM", "PM"]),
            "digits": lambda: " ".join(str(rng.randint(0, 9)) for _ in range(rng.randint(3, 5))),
            "dg": lambda: str(rng.randint(0, 9)),
            "d": lambda: str(rng.randint(1, 31)),
            "year": lambda: str(rng.randint(1900, 2035)),
            "month": lambda: rng.choice(MONTHS),
            "day": lambda: rng.choice(DAYS),
            "name": lambda: rng.choice(NAMES),
            "thing": lambda: rng.choice(THINGS),
            "place": lambda: rng.choice(PLACES),
            "l": lambda: rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
            "word": lambda: rng.choice(self._words),
        }
        return re.sub(r"\{(\w+)\}", lambda slot: fill[slot[1]](), rng.choice(TEMPLATES))


def held_out_sentences(wordnet: Path, count: int, seed: int) -> list[str]:
    """WordNet examples to set aside, 19 to 89 characters long."""
    examples, _ = _wordnet(wordnet)
    rng = random.Random(seed)
    rng.shuffle(examples)
    chosen = [text for text in examples if 18 < len(text) < 90][:count]
    return [text[:1].upper() + text[1:] + ("" if text[-1] in ENDS else ".") for text in chosen]


def _wordnet(folder: Path) -> tuple[list[str], list[str]]:
    """WordNet 3.0's data files → (usage examples, short glosses), each sorted and unique."""
    examples: set[str] = set()
    glosses: set[str] = set()
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text("latin1").splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            gloss = line.split("|", 1)[1]
            for quoted in re.findall(r'"([^"]+)"', gloss):
                text = quoted.strip().replace("`", "'").replace("--", ", ")
                if 2 <= len(text) <= 110 and re.fullmatch(r"[A-Za-z0-9 ,.'!?;:\-]+", text):
                    examples.add(text)
            meaning = gloss.split(";")[0].split('"')[0].strip()
            if 10 < len(meaning) < 90 and re.fullmatch(r"[A-Za-z ,'\-]+", meaning):
                glosses.add(meaning)
    return sorted(examples), sorted(glosses)


def _bare(text: str) -> str:
    return re.sub(r"[^a-z0-9 ]", "", text.lower()).strip()
