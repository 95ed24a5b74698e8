"""Grammars meant to cost too much: each is answered quickly, in little memory, in a live process.

They are tried in another process, in a thread with a stack of 1 MiB, an eighth of the usual.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

_CHILD = """
import json, resource, sys, threading, time
from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.compiler import GrammarCompiler
from farthing.sampling.grammar.matcher import MaskFiller
from farthing.sampling.grammar.params import StructuredOutputsParams
from farthing.sampling.grammar.vocabulary import GrammarVocabulary

tokens = [bytes([i]) for i in range(255)] + [b"<end>"]
tokens += [word * n for word in (b"a", b"ab", b" ", b"x", b"0") for n in range(2, 40)]
vocabulary = GrammarVocabulary(
    len(tokens), tokens.__getitem__, [255], [255], lambda text: text.encode()
)
compiler, filler = GrammarCompiler(vocabulary), MaskFiller(1)
compiler.matcher(StructuredOutputsParams(regex="a"))  # libraries are loaded, the trie is built

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def attempt(kind, value):
    before, start, steps = peak(), time.process_time(), []
    try:
        matcher, error = compiler.matcher(StructuredOutputsParams(**{kind: value})), None
    except InvalidParameterError as refused:
        matcher, error = None, str(refused)
    compiling = time.process_time() - start
    while matcher is not None and not matcher.finished and len(steps) < 30:
        start = time.process_time()
        (mask,) = filler.fill([matcher])
        if matcher.error is not None:
            error = matcher.error
            break
        allowed = [i for i in range(len(tokens)) if mask[i // 32] >> (i % 32) & 1]
        matcher.accept(allowed[len(allowed) // 2])
        steps.append(time.process_time() - start)
    return [error, compiling, max(steps, default=0), peak() - before]

def attempts():
    for line in sys.stdin:
        print(json.dumps(attempt(*json.loads(line))), flush=True)

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
threading.stack_size(1 << 20)
thread = threading.Thread(target=attempts)
thread.start()
thread.join()
"""
_DIED = "the process died"


def attempt_all(candidates: Sequence[tuple[str, Any]], child: str = _CHILD) -> list[Any]:
    """For each what the child says, or that it died of it, in which case another goes on."""
    results: list[Any] = []
    while len(results) < len(candidates):
        lines = [json.dumps(candidate) for candidate in candidates[len(results) :]]
        run = subprocess.run(
            [sys.executable, "-c", child],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        results += map(json.loads, run.stdout.splitlines())
        if len(results) < len(candidates):
            results.append(f"{_DIED} ({run.returncode}): {run.stderr[-300:]}")
    return results


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What each candidate of this file came to."""
    candidates = {**TOO_COMPLEX, **AT_THE_LIMIT}
    return dict(zip(candidates, attempt_all(list(candidates.values())), strict=True))


def error_of(result: Any) -> str | None:
    """The error, None if the grammar was taken; its costs are checked in either case."""
    assert not isinstance(result, str), result
    error, compiling, step, mebibytes = result
    assert compiling < 1.0  # seconds of this thread's process, whatever else the machine does
    assert step < 0.25
    assert mebibytes < 150
    assert error is None or isinstance(error, str)
    return error


def nested(depth: int, wrap: Callable[[Any], Any], value: Any) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


def doubling(levels: int) -> dict[str, Any]:
    """Each definition has the next twice, with a neighbour that makes it be written out."""
    definitions: dict[str, Any] = {
        f"d{i}": {
            "type": "array",
            "prefixItems": [{"type": "array", "$ref": f"#/$defs/d{i + 1}"}] * 2,
        }
        for i in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "array"}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def reference_chain(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}}
        for i in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": {}}}


def hidden_chain(levels: int) -> dict[str, Any]:
    """A chain that is short for whoever reads the other keywords first."""
    chain = reference_chain(levels)
    shallow = [{"$ref": f"#/$defs/d{i}"} for i in range(levels, 0, -1)]
    return {"items": {"$ref": "#/$defs/d0"}, "anyOf": shallow, "$defs": chain["$defs"]}


def either(i: int) -> dict[str, Any]:
    options = [{"type": "object", "properties": {f"{x}{i}": {"type": "string"}}} for x in "ab"]
    return {"anyOf": options}


def spread(i: int) -> dict[str, Any]:
    """Strings of which an automaton must remember many places; the empty one is among them."""
    return {"type": "string", "pattern": f"(.*a.{{{i}}}b.*)?"}


TREE = {"type": "object", "properties": {"left": {"$ref": "#/$defs/t"}, "n": {"anyOf": [{}, {}]}}}

TOO_COMPLEX: dict[str, tuple[str, Any]] = {
    "depth 10,000": ("json", '{"items":' * 10_000 + "{}" + "}" * 10_000),
    "depth 33": ("json", nested(33, lambda inner: {"items": inner}, {})),
    "value of depth 5,000": ("json", '{"const":' + "[" * 5_000 + "]" * 5_000 + "}"),
    "10^9 items": ("json", {"type": "array", "maxItems": 10**9}),
    "10^9 characters": ("json", {"type": "string", "minLength": 10**9}),
    "10^6 options": ("json", {"enum": list(range(10**6))}),
    "2^40 by references": ("json", doubling(40)),
    "2^14 by references": ("json", doubling(14)),
    "2^20 by allOf of anyOf": ("json", {"allOf": [either(i) for i in range(20)]}),
    "two trees at once": (
        "json",
        {
            "allOf": [{"$ref": "#/$defs/t"}, {"$ref": "#/$defs/u"}],
            "$defs": {
                "t": TREE,
                "u": {**TREE, "properties": {"left": {"$ref": "#/$defs/u"}, "m": {}}},
            },
        },
    ),
    "2,000 references": ("json", reference_chain(900)),
    "hidden references": ("json", hidden_chain(200)),
    "5,000 properties": ("json", {"required": [f"p{i}" for i in range(5_000)]}),
    "a multiple of 99,991": ("json", {"type": "integer", "multipleOf": 99_991}),
    "many pattern properties": ("json", {"patternProperties": {f"^{i}x": {} for i in range(99)}}),
    "2^20 by patterns of allOf": ("json", {"allOf": [spread(i) for i in range(20)]}),
    "2^20 by patterns of references": (
        "json",
        {
            "$ref": "#/$defs/d0",
            "$defs": {
                f"d{i}": {**spread(i), "allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(20)
            }
            | {"d20": {}},
        },
    ),
    "2^20 by patterns of properties": (
        "json",
        {
            "allOf": [
                {"type": "object", "properties": {"a": spread(i)}, "required": ["a"]}
                for i in range(20)
            ]
        },
    ),
    "2^20 by intersections": (
        "grammar",
        "start: T\nT: " + " & ".join(f"/{spread(i)['pattern']}/" for i in range(20)),
    ),
    "60,000 brackets": ("regex", "(" * 60_000 + "a" + ")" * 60_000),
    "40 brackets": ("regex", "(" * 40 + "a" + ")" * 40),
    "1,000^3 repeats": ("regex", "((a{1000}){1000}){1000}"),
    "500 times 10,000": ("regex", "a{9999}" * 500),
    "repeats in a pattern": ("json", {"type": "string", "pattern": "(a{999}){999}"}),
    "5,000 rules": (
        "grammar",
        "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(5_000)) + 'r5000: "a"',
    ),
    "brackets in rules": (
        "grammar",
        "start: r0\n"
        + "".join(f"r{i}: {'(' * 30}r{i + 1}{')' * 30}\n" for i in range(200))
        + 'r200: "a"',
    ),
    "10,000 Lark brackets": ("grammar", f"start: {'(' * 10_000}{')' * 10_000}"),
    "terminals of terminals": (
        "grammar",
        "start: T0\n" + "".join(f"T{i}: T{i + 1} T{i + 1}\n" for i in range(60)) + 'T60: "a"',
    ),
    "repeated terminals": ("grammar", 'start: A\nA: B{1000}\nB: C{1000}\nC: "abc"{1000}'),
    "long repeats": ("grammar", f'start: x{{999}}\nx: "{"ab" * 120}"'),
    "long texts": ("grammar", "start: x{99}\nx: T\nT: /(ab){4000}/"),
    "10^9 repeats of a rule": ("grammar", 'start: a{1000000000}\na: "a"'),
    "60,000 brackets of GBNF": ("grammar", "root ::= " + "(" * 60_000),
    "33 brackets of GBNF": ("grammar", f'root ::= {"(" * 33}"a"{")" * 33}'),
    "5,000 rules of GBNF": (
        "grammar",
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(5_000)) + 'r5000 ::= "a"',
    ),
    "70,000 bytes of GBNF": ("grammar", 'root ::= "a"' + " " * 70_000),
    "10,000 options of GBNF": ("grammar", 'root ::= "b"' + ' | "a"' * 10_500),
    "12,000 sets of GBNF": ("grammar", "root ::= " + "[a-z]" * 12_000 + " root"),
    "repeats of repeats in GBNF": ("grammar", 'root ::= (("a"{1000}){1000}){1000}'),
    "2^200 by rules of GBNF": (
        "grammar",
        "root ::= r0\n"
        + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(200))
        + 'r200 ::= "a"',
    ),
    "a long text of GBNF": ("grammar", f'root ::= "{"a" * 257}"'),
    "10^9 repeats of GBNF": ("grammar", 'root ::= "a"{0,1000000000}'),
    "repeats of nothing in GBNF": ("grammar", 'root ::= (""{100000}){100000} root | "b"'),
    "many loops that meet in GBNF": (
        "grammar",
        "root ::= " + "".join(f'[a-z]+ root "{i:b}" | ' for i in range(80)) + '"z"',
    ),
    "a row of characters that may be in GBNF": ("grammar", f'root ::= "(" root | {".? " * 1500}'),
}


@pytest.mark.parametrize("name", TOO_COMPLEX)
def test_what_is_too_complex_is_refused(name: str, results: dict[str, Any]) -> None:
    error = error_of(results[name])
    assert error is not None
    assert error.startswith("structured_outputs")
    assert "too complex" in error
    assert "\n" not in error
    assert len(error) < 400


def wide(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"property{i}": {} for i in range(count)}}


AT_THE_LIMIT: dict[str, tuple[str, Any]] = {
    "depth 32": ("json", nested(31, lambda inner: {"items": inner}, {})),
    "depth 32 of objects": ("json", nested(31, lambda inner: {"properties": {"a": inner}}, {})),
    "depth 32 of options": ("json", nested(31, lambda inner: {"anyOf": [inner, {}]}, {})),
    "100,000 items": ("json", {"type": "array", "minItems": 100_000, "items": {"const": "x" * 99}}),
    "100,000 characters": ("json", {"type": "string", "minLength": 99_000, "maxLength": 100_000}),
    "3,000 options": ("json", {"enum": [f"option {i}" for i in range(3_000)]}),
    "1,000 properties": ("json", wide(1_000)),
    "31 references": ("json", reference_chain(31)),
    "an endless beginning": (
        "json",
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"], "type": "object"},
    ),
    "multiples of 9,973": ("json", {"type": "integer", "multipleOf": 9_973}),
    "64 exclusive options": (
        "json",
        {
            "oneOf": [
                {"type": "object", "properties": {"k": {"const": f"{i}"}}, "required": ["k"]}
                for i in range(64)
            ]
        },
    ),
    "patterns with a memory": (
        "json",
        {
            "type": "object",
            "properties": {
                f"p{i}": {"type": "string", "pattern": f"(a|b)*a(a|b){{15}}x{i}", "minLength": 30}
                for i in range(100)
            },
        },
    ),
    "lengths of formats": (
        "json",
        {
            "type": "object",
            "properties": {
                f"p{i}": {"type": "string", "format": "email", "maxLength": 90 + i}
                for i in range(200)
            },
        },
    ),
    "10,000 repeats": ("regex", "(ab){5000}"),
    "a memory of 20": ("regex", ".*[ab].{20}y"),
    "a memory of 500": ("regex", "[ab]*a[ab]{500}a"),
    "nested options": ("regex", "((ab?){0,70}c?){0,70}"),
    "4,000 characters": ("regex", "|".join(f"a{i}b" for i in range(650))),
    "32 brackets": ("regex", "(a|b" * 32 + ")*" * 32),
    "2,000 choices": ("choice", [f"a {i} b" for i in range(2_000)]),
    "190 rules": (
        "grammar",
        "start: r0\n" + "".join(f'r{i}: r{i + 1} "b"\n' for i in range(190)) + 'r190: "a"',
    ),
    "12 rules of 30 brackets": (
        "grammar",
        "start: r0\n"
        + "".join(f"r{i}: {'(' * 30}r{i + 1}{')' * 30}\n" for i in range(12))
        + 'r12: "a"',
    ),
    "190 terminals": (
        "grammar",
        "start: T0\n" + "".join(f'T{i}: T{i + 1} "b"\n' for i in range(190)) + 'T190: "a"',
    ),
    "an ambiguous rule": ("grammar", 'start: e\ne: e e | e e e | "a" | "ab"'),
    "very ambiguous rules": (
        "grammar",
        'start: e\ne: "a" | ' + " | ".join(" ".join("e" * n) for n in range(2, 13)),
    ),
    "optional beginnings": ("grammar", f'start: e\ne: {"e? " * 12} "a"'),
    "ambiguous options": (
        "json",
        {
            "$ref": "#/$defs/e",
            "$defs": {
                "e": {
                    "anyOf": [
                        {"type": "array", "items": {"$ref": "#/$defs/e"}, "maxItems": i}
                        for i in range(60)
                    ]
                }
            },
        },
    ),
    "terminals of nothing": ("grammar", 'start: r\nr: T T T r | "a"\nT: "ab"* "a"*'),
    "many terminals of nothing": ("grammar", 'start: x{0,500} "a"\nx: T\nT: "ab"* "a"*'),
    "a letter too many": ("grammar", 'start: "x" /a+/ "a"+'),
    "a terminal that goes on": ("grammar", 'start: T "a"\nT: "b" ("a"+ | A "baaaa")\nA: /a[ax]/'),
    "rules of nothing": ("grammar", 'start: e* "a"\ne: e e | ""'),
    "32 brackets of GBNF": ("grammar", f'root ::= {"(" * 31}"a"{")" * 31} root?'),
    "190 rules of GBNF": (
        "grammar",
        "root ::= r0\n"
        + "".join(f'r{i} ::= r{i + 1} "b"\n' for i in range(190))
        + 'r190 ::= "a" root?',
    ),
    "an ambiguous rule of GBNF": ("grammar", 'root ::= root root | root root root | "a" | "ab"'),
    "9,000 characters of GBNF": ("grammar", 'root ::= ("ab" [a-z]){0,1800} "b"'),
    "5,000 options of GBNF": ("grammar", 'root ::= "b" root' + ' | "a"' * 5_000),
    "to the right for ever": ("grammar", 'start: "a" start'),
    "for ever in long steps": ("grammar", f'start: "{"ab" * 120}" start'),
    "48,000 characters that must be": ("grammar", f'start: x{{199}}\nx: "{"ab" * 120}"'),
    "38,000 characters of terminals": ("grammar", f'start: x{{4}}\nx: T\nT: "{"ab" * 120}"{{40}}'),
    "the contrary": ("grammar", "start: A\nA: ~/.*(ab|cd).*/ & /(?s:.{1,900})/"),
}


@pytest.mark.parametrize("name", AT_THE_LIMIT)
def test_what_is_just_taken_or_not_costs_little(name: str, results: dict[str, Any]) -> None:
    error = error_of(results[name])
    assert error is None or "complex" in error


def test_the_limits_are_what_keeps_the_process_alive() -> None:
    """The inverse test: without the check, the process dies of a candidate."""
    unchecked = (
        "import farthing.sampling.grammar.json_schema as schemas\n"
        "schemas.check_cost = lambda *_: None\n"
    )
    child = _CHILD.replace("def peak", unchecked + "def peak").replace("2 << 30", "1 << 30")
    fine, fatal = attempt_all([("json", {}), ("json", doubling(25))], child)
    assert error_of(fine) is None
    assert isinstance(fatal, str)
    assert fatal.startswith(_DIED)
