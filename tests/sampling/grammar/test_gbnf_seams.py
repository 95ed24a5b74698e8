"""GBNF grammars that lead back to themselves, held against a recognizer that knows no terminals."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from pathlib import Path

import llguidance
import pytest

from farthing import LLM, SamplingParams
from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.gbnf import (
    Choice,
    Node,
    Reference,
    Repeat,
    Sequence,
    Set,
    Text,
    parse_gbnf,
)
from farthing.sampling.grammar.params import StructuredOutputsParams
from farthing.sampling.grammar.translation import limits
from support.tiny_models import make_tiny_model

BYTES = llguidance.LLTokenizer("byte", slices=[])


class Recognizer:
    """Where each rule may end from each place, found by trying until nothing is new."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules

    def takes(self, text: str) -> bool:
        ends: dict[tuple[str, int], set[int]] = {("root", 0): set()}
        growing = True
        while growing:
            before = sum(map(len, ends.values())) + len(ends)
            for name, at in [*ends]:
                ends[name, at] |= self._ends(self._rules[name], {at}, text, ends)
            growing = sum(map(len, ends.values())) + len(ends) > before
        return len(text) in ends["root", 0]

    def _ends(
        self, node: Node, starts: set[int], text: str, ends: dict[tuple[str, int], set[int]]
    ) -> set[int]:
        match node:
            case Text(wanted):
                return {at + len(wanted) for at in starts if text.startswith(wanted, at)}
            case Set(ranges, negated):
                return {
                    at + 1
                    for at in starts
                    if at < len(text) and any(a <= ord(text[at]) <= b for a, b in ranges) != negated
                }
            case Reference(name):
                return set().union(*(ends.setdefault((name, at), set()) for at in starts))
            case Sequence(items):
                for item in items:
                    starts = self._ends(item, starts, text, ends)
                return starts
            case Choice(options):
                return set().union(*(self._ends(item, starts, text, ends) for item in options))
            case Repeat(item, least, most):
                found = starts if least == 0 else set()
                for count in range(1, (least + len(text) if most is None else most) + 1):
                    starts = self._ends(item, starts, text, ends)
                    found = found | starts if count >= least else found
                return found


class Taken:
    """Whether llguidance takes texts as whole answers of a grammar."""

    def __init__(self, grammar: str) -> None:
        written = StructuredOutputsParams(grammar=grammar).translated()
        self._matcher = llguidance.LLMatcher(BYTES, written, log_level=0, limits=limits("grammar"))
        assert not self._matcher.is_error(), self._matcher.get_error()

    def takes(self, text: str) -> bool:
        matcher = self._matcher.deep_copy()
        return all(map(matcher.consume_token, text.encode())) and matcher.is_accepting()


def made_up(draw: random.Random, depth: int, letters: str) -> str:
    """A part of a grammar with rules root, one and two."""
    if depth == 0:
        text = "".join(draw.choices(letters, k=draw.randrange(4)))
        some = "".join(draw.sample(letters, draw.randrange(1, 3)))
        loop = draw.choice(["*", "+", "", "{0,2}"])
        return draw.choice([f'"{text}"', f"[{some}]{loop}", f"[{some}]*", "one", "two", "root"])
    parts = [made_up(draw, depth - 1, letters) for _ in range(draw.randrange(1, 4))]
    kind = draw.choice(["and", "and", "or", "times"])
    if kind == "times":
        return f"({parts[0]}){draw.choice(['*', '+', '?', '{2}', '{1,2}'])}"
    return f"({(' | ' if kind == 'or' else ' ').join(parts)})"


@pytest.mark.parametrize("letters", ["abc", "aéè", "あいィ"])
@pytest.mark.parametrize("seed", range(4))
def test_made_up_grammars_take_what_the_recognizer_takes(seed: int, letters: str) -> None:
    draw = random.Random(seed)
    texts = ["".join(text) for n in range(7) for text in itertools.product(letters, repeat=n)]
    grammars = right = wrong = 0
    while grammars < 8:
        one, two, tail = (made_up(draw, 1, letters) for _ in range(3))
        root = f'{made_up(draw, 2, letters)} ("(" root ")" | {tail})'
        grammar = f"root ::= {root}\none ::= {one}\ntwo ::= {two}"
        recognizer = Recognizer(parse_gbnf(grammar))
        sample = [*texts[:13], *draw.sample(texts, 17)]
        expected = [text for text in sample if recognizer.takes(text)]
        if not expected:
            continue
        taken = Taken(grammar)
        assert [text for text in sample if taken.takes(text)] == expected, grammar
        grammars += 1
        right += len(expected)
        wrong += len(sample) - len(expected)
    assert min(right, wrong) > 20


ARITHMETIC = r"""
root ::= (sum "=" gap value "\n")+
sum ::= value ([-+*/] value)*
value ::= name | digits | "(" gap sum ")" gap
name ::= [a-z] [a-z0-9_]* gap
digits ::= [0-9]+ gap
gap ::= [ \t\n]*
"""
QUERY = r"""
root ::= "WHERE " condition
condition ::= test (" AND " test)*
test ::= column gap "=" gap [0-9]+ gap | "(" condition ")"
column ::= [a-z_]+
gap ::= " "*
"""
JSON = r"""
root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") gap
object ::= "{" gap (string ":" gap value ("," gap string ":" gap value)*)? "}" gap
array ::= "[" gap (value ("," gap value)*)? "]" gap
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" gap
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? gap
gap ::= | " " | "\n" [ \t]{0,20}
"""
LINES = r"""
root ::= "[\n" gap (value (",\n" gap value)*)? "]"
value ::= [0-9]+ gap | "[" gap value* "]" gap
gap ::= ([ \t\n] gap)?
"""
CODE = r"""
root ::= (type name "(" (type name)? ")" "{" line* "}")*
type ::= "int" gap | "float" gap
name ::= [a-zA-Z_] [a-zA-Z_0-9]*
line ::= type name gap "=" gap sum ";" | name gap "=" gap sum ";" | "return" gap sum ";" |
  "while" "(" sum ("<" | "<=" | "==") sum ")" "{" line* "}" | "//" [^\n]* "\n" |
  "/*" ([^*] | "*" [^/])* "*/"
sum ::= item (("+" | "-") item)*
item ::= name | [0-9]+ | "-" item | "(" gap sum gap ")" | name "(" (sum ("," gap sum)*)? ")"
gap ::= [ \t\n]+
"""
KINDS = {
    "arithmetic": (
        ARITHMETIC,
        ["1=2\n", "a = b\n", "a=b\nc=d\n", "( a\n) = b\n", "a= b\n\n", "((a))=b \n \nc=d\n"],
        ["a=b", "-a=b\n", "a==b\n", "a=b\n\nc\n"],
    ),
    "query": (
        QUERY,
        ["WHERE a = 1 AND b = 2", "WHERE (a=1) AND b=2", "WHERE (a=1  AND b=2 ) AND (c=3)"],
        ["WHERE a = 1 AND", "WHERE a = 1AND b=2", "WHERE (a=1 AND b=2"],
    ),
    "json": (
        JSON,
        ["{}", '{"a": 1}', '{"a": [1, -2.5e3, {"b": null}]}\n', '{\n\t"a": "\\u00e9水"\n}'],
        ["[1]", '{"a": 01}', '{"a": 1,}', '{"a"  : 1}'],
    ),
    "lines": (LINES, ["[\n]", "[\n1,\n2\n]", "[\n [1 [\n]],\n\n2]"], ["[1]", "[\n1,2]", "[\n1\n"]),
    "moves": (
        """root ::= "1. " pair ([1-9] [0-9]? ". " pair)*
        pair ::= move " " move "\\n" note?
        note ::= "(" root ")\\n"
        move ::= ([NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8] | ([a-h] "x")? [a-h] [1-8] |
          "O-O" "-O"?) [+#]?""",
        ["1. e4 e5\n", "1. e4 e5\n(1. Nbd7 O-O-O+\n)\n2. exd5 O-O\n"],
        ["1. e4\n", "1. e4 e5\n(2. e4 e5\n)\n"],
    ),
    "japanese": (
        """root ::= word ([ \\t\\n] word)* quoted?
        word ::= [ぁ-ゟ]+ | [ァ-ヿ]+ | [一-鿿]+
        quoted ::= "「" root "」" """,
        ["これ テスト", "漢字\nかな「これ 漢字」"],
        ["これテスト ", "「これ」", "漢字かな"],
    ),
    "english": (
        """root ::= sentence (" " sentence)*
        sentence ::= [A-Za-z] [a-z ]* said? [.!?]
        said ::= ": '" root "'" """,
        ["He said: 'Go. A b c.'. I went.", "A.", "A b  c! D."],
        ["a b", "He said: 'Go.'", ". A."],
    ),
    "list": (
        """root ::= item+
        item ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n" ("[" root "]\\n")?""",
        ["- a\n", "- a\n- b c\n", "- a\n[- é\n]\n- - b\n"],
        ["- a", "- \n", "- a\u2028b\n"],
    ),
    "code": (
        CODE,
        [
            "int main(){}",
            "int f(int x){x = x+1;return x;}",
            "int  f(){while(a<=b){int  c = f(1, a);}}",
            "int f(){//return\n/* a */}",
            "int f(){return -(  a );}",
            "int f(){intx = 1;int = 2;}",
            "int f(){returns = 3;}",
        ],
        ["intf(){}", "int f(){x=1}", "int f(){/* **/ }"],
    ),
    "two loops of the same": (
        'root ::= [a-z]* [a-c]+ ("(" root ")")?',
        ["a", "zzb", "abc(a(xa))"],
        ["z", "az", "a()"],
    ),
    "words that begin words": (
        """root ::= ("a" | "ab" | "abc") ("bcd" | "cd" | "c")? ("(" root ")")*""",
        ["abc", "abcd", "abccd", "abbcd", "a(abc)(abcc)"],
        ["abd", "abcb", "b"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_grammars_of_the_usual_kinds(kind: str) -> None:
    grammar, right, wrong = KINDS[kind]
    recognizer, taken = Recognizer(parse_gbnf(grammar)), Taken(grammar)
    assert [text for text in right if not recognizer.takes(text)] == []
    assert [text for text in wrong if recognizer.takes(text)] == []
    assert [text for text in right if not taken.takes(text)] == []
    assert [text for text in wrong if taken.takes(text)] == []


def test_a_loop_takes_as_one_what_it_may_take_as_several() -> None:
    """Text between tags may be several texts; it stays one terminal."""
    grammar = """root ::= "<" [a-z]+ ">" (root | text)* "</" [a-z]+ ">"
    text ::= [^<]+"""
    assert "/[^\\x{3c}]/+" in StructuredOutputsParams(grammar=grammar).source
    taken = Taken(grammar)
    assert taken.takes("<a>b c<d>e</d>f</a>")
    assert not taken.takes("<a>b c<d>e</d>f")


@pytest.mark.parametrize(
    ("grammar", "one", "other"),
    [
        ('root ::= item ("an" root)?\nitem ::= [a-z]{1,9}', "[a-z]{1,9}", '"an"'),
        ('root ::= [a-z]+ [a-z]+ ("(" root ")")? root?', "[a-z]+ [a-z]+", "[a-z]+ [a-z]+"),
    ],
)
def test_what_would_take_too_long_names_both_parts(grammar: str, one: str, other: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        StructuredOutputsParams(grammar=grammar)
    message = str(caught.value)
    assert message.startswith(
        f"structured_outputs: GBNF grammar leaves open where {one} ends: it may go on with '"
    )
    assert f"with which {other} may begin" in message
    assert "Let what ends the one be no character of it" in message


@pytest.mark.parametrize("grammar", [ARITHMETIC, QUERY], ids=["arithmetic", "query"])
def test_answers_come_to_an_end_and_are_of_the_grammar(grammar: str, tmp_path: Path) -> None:
    llm = LLM(make_tiny_model("llama-mha", tmp_path), kv_cache_tokens=4096)
    ends = [*llm.tokenizer.eos_token_ids, *llm.tokenizer.encode("=\n")]
    recognizer = Recognizer(parse_gbnf(grammar))
    asked = [
        SamplingParams(
            max_tokens=40,
            seed=seed,
            logit_bias=dict.fromkeys(ends, 8.0),
            structured_outputs=StructuredOutputsParams(grammar=grammar),
        )
        for seed in range(12)
    ]
    answers = [output.outputs[0] for output in llm.generate(["The miller"] * 12, asked)]
    whole = [answer.text for answer in answers if answer.finish_reason == "stop"]
    assert len(whole) > 2
    assert [text for text in whole if not recognizer.takes(text)] == []
    assert {answer.finish_reason for answer in answers} <= {"stop", "length"}
