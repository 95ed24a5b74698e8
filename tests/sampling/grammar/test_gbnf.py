"""GBNF: what its grammars take, held against Python's expressions, and what is wrong in them."""

from __future__ import annotations

import itertools
import random
import re

import llguidance
import pytest

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.params import StructuredOutputsParams
from farthing.sampling.grammar.translation import limits

BYTES = llguidance.LLTokenizer("byte", slices=[])
JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
    string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::= "[" ws ( value ("," ws value)* )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# at most one line break between two parts
ws ::= | " " | "\n" [ \t]{0,20}
"""


def takes(grammar: str, text: str) -> bool:
    """Whether ``text`` is a whole answer of ``grammar``."""
    written = StructuredOutputsParams(grammar=grammar).translated()
    matcher = llguidance.LLMatcher(BYTES, written, log_level=0, limits=limits("grammar"))
    assert not matcher.is_error(), matcher.get_error()
    return all(map(matcher.consume_token, text.encode())) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "y", "yesno"]),
        ('root ::= word "z"\nword ::= [a-z]+', ["az", "zz", "azz"], ["z", "a"]),
        ('root ::= start\nstart ::= "a"*', ["", "aa"], ["b"]),
        ("root ::= a-b a_b A-B\na-b ::= [a]\na_b ::= [b]\nA-B ::= [c]", ["abc"], ["aaa", "abb"]),
        ('root ::= "a"\n  | "b"\n  |\n  "c"\n', ["a", "b", "c"], ["d"]),
        ('root ::= "a" # x ::= "b"\n# root ::= "c"\n "#"', ["a#"], ["a", "b", "c"]),
        ("root ::= . .", ["ab", "\né", "🌾🌾"], ["a", "abc"]),
        ("root ::= [^a-c\\n]", ["d", "é"], ["a", "\n"]),
        ("root ::= [-a] [a-] [a-c]", ["-ab", "a-c"], ["b-c", "---"]),
        ("root ::= [a&&b~^]", ["&", "~", "^"], ["c"]),
        (r"root ::= [\x41-\x43\u00e9\U0001F33E] [\]\[\\]", ["B]", "é[", "🌾\\"], ["D]", "x41"]),
        (r'root ::= "\x41\u00e9\U0001F33E\"\\\n\t\[\]/"', ['Aé🌾"\\\n\t[]/'], ["A"]),
        ('root ::= "\x01\x7f\u2028é"', ["\x01\x7f\u2028é"], ["é"]),
        (r"root ::= [a\-z] [\-]", ["a-", "--", "z-"], ["b-"]),
        ('root ::= "a"{0} "b" [c]{0,0}', ["b"], ["ab", "bc"]),
        ('root ::= "(" root{0} ")" root | "b"', ["()b", "()()b"], ["(b)b"]),
        ('root ::= "a"{2} "b"{1,} "c"{ 0 , 2 }', ["aab", "aabbcc"], ["ab", "aac", "aabccc"]),
        ('root ::= ("a" ("b" | ("c")?)*)?', ["", "a", "abcb"], ["b"]),
        ('root ::= "" | "a"', ["", "a"], ["aa"]),
        ('root::="a"b\nb::="c"', ["ac"], ["a"]),
        # These lead back to themselves.
        ('root ::= "[" (root ("," root)*)? "]" | [0-9]+', ["12", "[]", "[[1,23],4]"], ["[1,]"]),
        ('root ::= "a" [a-z]* "z" (";" root)?', ["az", "azzz;abz"], ["a", "az;"]),
        ('root ::= root "b" | "a"', ["a", "abb"], ["b", "aba"]),
        ('root ::= ("(" root ")")*', ["", "()(())"], ["(", ")("]),
        (JSON, ['{"a": [1, -2.5e3, true, "\\u00e9"], "b":{}}', "{\n  }"], ["{", "[1]", '{"a"}']),
    ],
)
def test_texts_of_a_grammar(grammar: str, right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if not takes(grammar, text)] == []
    assert [text for text in wrong if takes(grammar, text)] == []


def made_up(draw: random.Random, depth: int) -> tuple[str, str]:
    """A part of a grammar, and an expression of Python's for the same texts."""
    kind = draw.choice(["text", "set", "not"] if depth == 0 else ["and", "or", "times", "part"])
    if kind == "text":
        text = "".join(draw.choices("ab-", k=draw.randrange(3)))
        return f'"{text}"', re.escape(text)
    if kind in ("set", "not"):
        chosen = "".join(draw.sample("ab-", draw.randrange(1, 3)))
        mark = "^" * (kind == "not")
        return f"[{mark}{chosen}]", f"[{mark}{re.escape(chosen)}]"
    parts = [made_up(draw, depth - 1) for _ in range(draw.randrange(1, 4))]
    if kind == "part":
        return f"( {parts[0][0]} )", f"(?:{parts[0][1]})"
    if kind == "times":
        mark = draw.choice(["*", "+", "?", "{2}", "{1,}", "{0,2}"])
        return f"({parts[0][0]}){mark}", f"(?:{parts[0][1]}){mark}"
    joined = " ".join(part for part, _ in parts), "".join(f"(?:{part})" for _, part in parts)
    if kind == "or":
        joined = " | ".join(part for part, _ in parts), "|".join(part for _, part in parts)
    return f"({joined[0]})", f"(?:{joined[1]})"


def test_made_up_grammars_take_what_pythons_expressions_take() -> None:
    draw = random.Random(11)
    texts = ["".join(letters) for n in range(5) for letters in itertools.product("ab-", repeat=n)]
    taken = 0
    for _ in range(60):
        (left, left_), (right, right_) = made_up(draw, 2), made_up(draw, 2)
        grammar = f"other ::= {right}\nroot ::= {left} other"
        expression = re.compile(f"(?:{left_})(?:{right_})")
        for text in draw.sample(texts, 30):
            matches = expression.fullmatch(text) is not None
            assert takes(grammar, text) == matches, (grammar, text)
            taken += matches
    assert taken > 100


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        ('root ::= "a" "', "line 1: cannot be read from '\"' on"),
        ('root ::= "a"\nb ::= [a', "line 2: cannot be read from '[a' on"),
        (
            'root ::= "a"\nb ::= <think>',
            "line 2: tokens of a vocabulary (<think>) are not supported",
        ),
        ("root ::= !<[1]>", "line 1: tokens of a vocabulary (!<[1]>) are not supported"),
        ("root ::=\n b", "line 2: there is no rule b"),
        ('a ::= "a"', "has no rule root, with which an answer begins"),
        (
            'root ::= "a"\nroot ::= "b"',
            "line 2: the rule root is there twice, which is not supported",
        ),
        ('a = "b"\nroot ::= "a"', "line 1: 'a' stands before the first rule (name ::= …)"),
        ('root ::= "\\q"', r"line 1: '\\q' is no escape of GBNF"),
        ("root ::= [z-a]", "line 1: the range 'z' to 'a' is empty"),
        ("root ::= []", "line 1: [] is no character at all"),
        ("root ::= [\\ud800]", "line 1: \\ud800 is no character"),
        ('root ::= "\\U00110000"', "line 1: \\U00110000 is no character"),
        ('root ::= "a"*+', "line 1: a repeat of a repeat; put brackets around the first"),
        ("root ::= *", "line 1: a repeat of nothing"),
        ('root ::= ("a"\nb ::= "b"', "line 1: an open bracket that nothing closes"),
        ('root ::= "a")', "line 1: a closing bracket too many"),
        ('root ::= "a"{3,2}', "line 1: {3,2} has its bounds the wrong way round"),
        ("root ::= root", "no text satisfies it"),
        ('root ::= "a" \ud800', "has a lone surrogate"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(grammar: str, problem: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        StructuredOutputsParams(grammar=grammar)
    assert str(caught.value).startswith("structured_outputs: GBNF grammar")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lark_grammar_may_speak_of_gbnf() -> None:
    assert takes('// root ::= "b"\nstart: "x ::= " /[a-z]/', "x ::= y")


def test_errors_name_what_was_asked_for() -> None:
    with pytest.raises(InvalidParameterError, match=r"^guided_grammar: GBNF grammar line 1: a rep"):
        StructuredOutputsParams(grammar="root ::= *", called="guided_grammar")
    with pytest.raises(InvalidParameterError, match=r"^guided_choice must be a list of one or"):
        StructuredOutputsParams(choice=[], called="guided_choice")
