"""Questions made of the facts of the game quiz (BSD games): which, and which not any more.

A file has a fact a line, its sides parted by colons. In a side ``a|b`` are alternatives, ``[...]``
groups them, and what is in ``{...}`` may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

Question = tuple[str, list[str]]

# Not a capital any more, one of several, disputed, of a territory few know, or the country's name.
LEFT_OUT = {
    "africa": "Burundi, Djibouti, Equatorial Guinea, Mayotte, Reunion, Saint Helena, "
    "Republic of South Africa, Swaziland, Egypt",
    "america": "Anguilla, Aruba, Bolivia, British Virgin Islands, Cayman Islands, French Guiana, "
    "Guadeloupe, Martinique, Montserrat, Netherlands Antilles, Saint Barthelemy, Saint Martin, "
    "Saint Pierre and Miquelon, SGSSI, "
    "Turks and Caicos Islands, United States Virgin Islands",
    "asia": "Cyprus, Georgia, Armenia, Azerbaijan, Kazakhstan, Russia, Turkey, Indonesia, Israel, "
    "Singapore, Sri Lanka, Taiwan, Republic of Yemen",
    "europe": "Abkhazia, Gibraltar, Guernsey, Isle of Man, Jersey, Kosovo, Luxembourg, Monaco, "
    "San Marino, South Ossetia, Svalbard, Vatican City, Aland Islands",
    "province": "Canada, Quebec",
}
RARE = """
La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Ac Th Pa Np Am Cm Bk Cf Es Fm Md No Lw Hf Tc At Fr
"""
RENAMED = {
    "Burma": "Myanmar",
    "Central African Republic": "the Central African Republic",
    "Comoros": "the Comoros",
    "C^ote d'Ivoire": "Ivory Coast",
    "Czech Republic": "the Czech Republic",
    "DR Congo": "the Democratic Republic of the Congo",
    "Dominican Republic": "the Dominican Republic",
    "Falkland Islands": "the Falkland Islands",
    "Faroe Islands": "the Faroe Islands",
    "Georgia": "the country of Georgia",
    "Macedonia": "North Macedonia",
    "Malagasy Republic": "Madagascar",
    "Maldives": "the Maldives",
    "Netherlands": "the Netherlands",
    "Philippines": "the Philippines",
    "Northwest Territories": "the Northwest Territories",
    "Rep. Congo": "the Republic of the Congo",
    "Republic of China": "China",
    "Seychelles": "the Seychelles",
    "The Bahamas": "the Bahamas",
    "The Gambia": "the Gambia",
    "United Arab Emirates": "the United Arab Emirates",
    "United Kingdom": "the United Kingdom",
    "United States": "the United States",
    "Yukon Territory": "Yukon",
}
ALSO_RIGHT = {
    "Ulan Bator": ["Ulaanbaatar"],
    "Kuwait City": ["Kuwait"],
    "Washington DC": ["Washington D.C."],
    "Ashgabat": ["Ashkhabad"],
    "far": ["distant"],
    "below": ["under", "beneath"],
    "apart": ["separate", "alone"],
    "Nuuk": ["Godthab"],
    "puppy": ["pup"],
    "caterpillar": ["larva"],
    "sour": ["bitter"],
    "sad": ["unhappy"],
    "thin": ["slim"],
}
NOT_RIGHT = {"Bathurst", "Peking"}  # any more
YOUNG = {"lion", "cat", "goose", "horse", "dog", "seal", "duck", "deer", "pig", "sheep", "goat"}
YOUNG |= {"chicken", "frog", "kangaroo", "cow", "butterfly", "eel", "eagle", "owl"}
FEMALE = {"abbot", "boar", "bull", "duke", "gander", "lad", "monk", "prince", "ram"}
FEMALE |= {"rooster", "stallion"}

OPPOSED = {"on", "inside", "high", "old", "top", "near", "empty", "buy", "asleep", "up", "happy"}
OPPOSED |= {"hard", "fast", "wet", "good", "always", "beautiful", "rough", "above", "after", "plus"}
OPPOSED |= {"together", "fat", "dawn", "large", "give", "sweet", "run"}


def questions(folder: Path) -> Iterator[tuple[str, Question]]:
    """What is asked, and of which file, for all files used."""
    for name in ("africa", "america", "asia", "europe", "province"):
        for place, capital in _sides(folder / name, 0, 1):
            if place[0] not in _names(LEFT_OUT[name]):
                asked = RENAMED.get(place[0], place[0])
                yield name, (f"What is the capital of {asked}?", capital)
    for state, capital in _sides(folder / "state", 0, 1):
        yield "state", (f"What is the capital of the US state of {state[0]}?", capital)
    for state, letters in _sides(folder / "state", 0, 2):
        asked = f"What is the two-letter abbreviation of the US state of {state[0]}?"
        yield "state", (asked, letters[:1])
    for symbol, element in _sides(folder / "elements", 0, 3):
        if symbol[0] not in RARE.split():
            yield "elements", (f"What is the chemical symbol of {element[0].lower()}?", symbol)
    for adult, young in _sides(folder / "babies", 1, 0):
        if adult[0] in YOUNG:
            yield "babies", (f"What is a young {adult[0]} called?", young)
    for male, female in _sides(folder / "sexes", 0, 1):
        if male[0] in FEMALE:
            yield "sexes", (f"What is the female counterpart of {_a(male[0])} called?", female)
    for positive, negative in _sides(folder / "posneg", 0, 1):
        if positive[0] in OPPOSED:
            yield "posneg", (f"What is the opposite of {positive[0]}?", negative)
    for first, following in _sides(folder / "seq-easy", 0, 1):
        numbers = first[0].replace(",", ", ")
        yield "seq-easy", (f"Which number comes next: {numbers}?", [following[-1]])
    for product, result in _sides(folder / "mult", 0, 1):
        one, other = map(int, product[0].split(" x "))
        if 3 <= one <= other <= 9:
            yield "mult", (f"What is {one} times {other}?", result)


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _names(listed: str) -> set[str]:
    return set(listed.split(", "))


def _sides(file: Path, one: int, other: int) -> Iterator[tuple[list[str], list[str]]]:
    """The spellings of two sides of each fact, the fullest first."""
    text = file.read_text("latin-1").replace("\\\n", "")
    for line in text.splitlines():
        sides = line.split(":")
        yield _spellings(sides[one]), _accepted(_spellings(sides[other]))


def _accepted(answers: list[str]) -> list[str]:
    more = [other for each in answers for other in ALSO_RIGHT.get(each, [])]
    return [each for each in answers + more if each not in NOT_RIGHT]


def _spellings(side: str) -> list[str]:
    """All that a side stands for; alternatives in their order, what may be left out at first in."""
    found, end = _alternatives(side, 0)
    assert end == len(side), side
    plain = [each for each in dict.fromkeys(found) if not set("'^~,/°") & set(each)]
    return plain or list(dict.fromkeys(found))


def _alternatives(side: str, at: int) -> tuple[list[str], int]:
    found: list[str] = []
    sequence = [""]
    while at < len(side) and side[at] not in "]}":
        character = side[at]
        at += 1
        if character == "|":
            found += sequence
            sequence = [""]
            continue
        parts = [character]
        if character in "[{":
            parts, at = _alternatives(side, at)
            parts += [""] * (character == "{")
            at += 1
        sequence = [before + part for before in sequence for part in parts]
    return found + sequence, at
