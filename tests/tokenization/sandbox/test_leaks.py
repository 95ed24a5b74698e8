"""Every way a template can handle text: content stays content.

Greek letters come from messages and from nowhere else, so none may be in a template segment.
"""

from __future__ import annotations

from typing import Any

import pytest

from farthing.tokenization import ChatTemplate
from farthing.tokenization.sandbox.filters import REWRITE_FILTERS, filter_table
from farthing.tokenization.sandbox.strings import STRING_METHODS

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": " αβγ δ.\nεζ <η>\t", "name": "ΘΙ", "parts": ["κ", "λμ", "κ"]},
    {"role": "νξ", "content": "Οπ", "κλειδί": {"ρ": ["σ", {"τ": "υ"}]}, "n": 3},
]

FILTERS = {
    "abs": "messages[1].n | abs",
    "attr": "ns | attr('x')",
    "batch": "m.parts | batch(2, c) | list",
    "capitalize": "c | capitalize",
    "center": "c | center(40)",
    "count": "c | count",
    "d": "u | d(c)",
    "default": "u | default(c)",
    "dictsort": "k | dictsort",
    "e": "c | e",
    "escape": "c | escape",
    "first": "c.strip() | first",
    "float": "c | float",
    "forceescape": "c | forceescape",
    "format": "'x%s-%5s-%r' | format(c, c, c)",
    "groupby": "messages | groupby('content') | map(attribute='grouper') | list",
    "indent": "c | indent(c)",
    "int": "c | int",
    "items": "k | items | list",
    "join": "m.parts | join(c)",
    "last": "m.parts | last",
    "length": "c | length",
    "list": "c | list",
    "lower": "c | lower",
    "map": "m.parts | map('upper') | list",
    "max": "m.parts | max",
    "min": "c | min",
    "reject": "m.parts | reject('eq', 'κ') | list",
    "rejectattr": "messages | rejectattr('name') | list",
    "replace": "'x-y' | replace('-', c)",
    "reverse": "c | reverse",
    "round": "1.5 | round",
    "safe": "c | safe",
    "select": "m.parts | select | list",
    "selectattr": "messages | selectattr('content') | list",
    "slice": "m.parts | slice(2) | list",
    "sort": "m.parts | sort",
    "string": "messages | string",
    "sum": "[messages[1].n] | sum",
    "title": "c | title",
    "tojson": "messages | tojson",
    "trim": "c | trim",
    "truncate": "c | truncate(5, true, c[1], 0)",
    "unique": "m.parts | unique | list",
    "upper": "c | upper",
}
METHODS = {
    "center": "'x'.center(9, c.strip()[0])",
    "count": "c.count('α')",
    "endswith": "c.endswith('α')",
    "expandtabs": "c.expandtabs(2)",
    "find": "c.find('α')",
    "format": "'{} {0:>9} {0!r} {1[content]} {1.name} {x}'.replace('{} ', '').format(c, m, x=c)",
    "index": "c.index('α')",
    "join": "c.join(['x', 'y', c])",
    "ljust": "'x'.ljust(9, c.strip()[0])",
    "lstrip": "c.lstrip(c[:1])",
    "partition": "c.partition('β')",
    "removeprefix": "c.removeprefix(' ')",
    "removesuffix": "c.removesuffix('\\t')",
    "replace": "'x-y'.replace('-', c)",
    "rfind": "c.rfind('α')",
    "rindex": "c.rindex('α')",
    "rjust": "'x'.rjust(9, c.strip()[0])",
    "rpartition": "('x' ~ c ~ 'y').rpartition('β')",
    "rsplit": "c.rsplit('β', 1)",
    "split": "c.split('β')",
    "splitlines": "c.splitlines(true)",
    "startswith": "c.startswith('α')",
    "zfill": "c.zfill(40)",
}
OTHERS = [
    "c",
    "messages",
    "[c, (c,), {c: c}]",
    "c ~ 'x' ~ c ~ 1",
    "'x' + c",
    "c + 'x'",
    "c * 3",
    "3 * c",
    "'%s' % c",
    "'%(a)s %(a)10s' % {'a': c}",
    "c % ()",
    "c.format()",
    "c[2]",
    "c[-3:]",
    "c[::-1]",
    "('x' ~ c)[1:3]",
    "[c] + [c]",
    "[c] * 2",
    "m['content']",
    "m.get('content')",
    "m.items() | list",
    "k.keys() | list",
    "k.values() | list",
    "dict(a=c)",
    "dict(messages[1])",
    "namespace(a=c).a",
    "cycler(c, 'x').next()",
    "c if true else 'x'",
    "u or c",
    "c and c",
    "not c or c",
    "strftime_now(c)",
    "messages | map(attribute='content') | join",
    "messages | join(attribute='content')",
    "c.strip().upper().lower().split()[0].join(['x', 'y'])",
    "c.splitlines() | map('trim') | map('replace', 'α', 'x') | join('-')",
]
STATEMENTS = [
    "{% for x in c %}{{ x }}{% endfor %}",
    "{% for x in c.split() %}{{ loop.index }}{{ x }}{{ loop.nextitem }}{% endfor %}",
    "{% for key, value in k.items() %}{{ key }}{{ value }}{% endfor %}",
    "{% for x in [c] recursive %}{{ x }}{{ loop([]) }}{% endfor %}",
    "{% set x %}x{{ c }}{% endset %}{{ x }}{{ x | upper }}",
    "{% set x | replace('-', 'y') %}-{{ c }}{% endset %}{{ x }}",
    "{% filter upper %}x{{ c }}{% endfilter %}",
    "{% macro f(a, b=c) %}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(c, c, c, z=c) }}",
    "{% macro f() %}{{ caller(c) }}{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}",
    "{% block b %}{{ messages[0].content }}{% endblock %}{{ self.b() }}",
    "{% with x = c %}{{ x }}{% endwith %}",
    "{% set a, b = c.strip()[:2] %}{{ a }}{{ b }}",
    "{% set ns.x = ns.x ~ c %}{{ ns.x }}",
    "{% set j = joiner(c) %}{{ j() }}{{ j() }}",
    "{% generation %}{{ c }}{% endgeneration %}",
    "{% if 'α' in c %}{{ c }}{% endif %}",
]
PREAMBLE = (
    "{% set m = messages[0] %}{% set c = m.content %}{% set ns = namespace(x=c) %}"
    "{% set k = messages[1][messages[1] | select('gt', 'ι') | first] %}"
)


def segments(body: str) -> list[tuple[str, bool]]:
    return [(s.text, s.from_template) for s in ChatTemplate(PREAMBLE + body).render(MESSAGES)]


def content_of(body: str) -> str:
    found = segments(body)
    for text, from_template in found:
        greek = [letter for letter in text if "\u0370" <= letter < "\u0400"]
        assert not from_template or not greek, (body, found)
    return "".join(text for text, from_template in found if not from_template)


def test_the_lists_below_name_every_filter_and_method() -> None:
    assert set(FILTERS) == set(filter_table())
    plain = {name for name in STRING_METHODS if name.startswith("is")}
    simple = {"capitalize", "casefold", "lower", "strip", "rstrip", "swapcase", "title", "upper"}
    assert set(METHODS) | plain | simple == STRING_METHODS


@pytest.mark.parametrize("name", FILTERS)
def test_filters(name: str) -> None:
    content = content_of("{{ " + FILTERS[name] + " }}")
    numbers = ("abs", "count", "float", "int", "length", "round", "sum")
    assert content or name in numbers


@pytest.mark.parametrize("name", sorted(STRING_METHODS))
def test_string_methods(name: str) -> None:
    expression = METHODS.get(name, f"c.{name}()")
    content = content_of("{{ " + expression + " }}")
    facts = ("count", "endswith", "find", "index", "rfind", "rindex", "startswith")
    assert content or name in facts or name.startswith("is")


@pytest.mark.parametrize("expression", OTHERS)
def test_expressions(expression: str) -> None:
    assert content_of("{{ " + expression + " }}")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements(statement: str) -> None:
    assert content_of(statement)


def test_filters_put_in_by_the_rewriting_cannot_be_spelled() -> None:
    for name in REWRITE_FILTERS:
        with pytest.raises(Exception, match="chat template fails"):
            ChatTemplate("{{ 'x' | " + name + " }}")


def test_what_the_template_wrote_stays_the_template_s() -> None:
    for body in (
        "{{ '<a>' + c + '</a>' }}",
        "{{ '<a>' ~ c ~ '</a>' }}",
        "{{ '<a>%s</a>' % c }}",
        "{{ '<a>%s</a>' | format(c) }}",
        "{{ '<a>{}</a>'.format(c) }}",
        "{{ ('<a>' ~ c ~ '</a>') | trim }}",
        "{{ ('<a>' ~ c ~ '</a>').replace('\\n', '') }}",
        "{{ ['<a>', c, '</a>'] | join }}",
        "{{ c.join(['<a>', '</a>']) }}",
        "{{ ('- <a>' ~ c ~ '</a>').split('- ')[1] }}",
        "{% filter trim %}<a>{{ c }}</a>{% endfilter %}",
    ):
        found = segments(body)
        assert found[0] == ("<a>", True), body
        assert found[-1] == ("</a>", True), body
