"""Hostile templates: an error soon, a bounded process, and nothing reached (faults.md, T5)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from farthing.errors import ChatTemplateError
from farthing.tokenization import ChatTemplate, Segment
from farthing.tokenization.sandbox import budget

pytestmark = pytest.mark.usefixtures("others_garbage")

MESSAGES = [{"role": "user", "content": "hello"}]


def attack(source: str) -> str:
    return "".join(segment.text for segment in ChatTemplate(source).render(MESSAGES))


BIG = "{% set x = 'a' * 8000000 %}{% set y = 'a' * 8000000 %}"
ENDLESS = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}{% endfor %}{% endfor %}",
    "{% for a in 'a' * 8000000 %}{% for b in 'a' * 8000000 %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% for i in range(9999) %}{{ range(99999) | map('string') | list | length }}{% endfor %}",
    "{{ range(99999) " + "| map('string') " * 500 + "| list | length }}",
    BIG + "{% for i in range(99999) %}{% if x == y %}{% endif %}{% endfor %}",
    BIG + "{% for i in range(99999) %}{% if 'b' in x %}{% endif %}{% endfor %}",
    BIG + "{% for i in range(99999) %}{% if x is eq(y) %}{% endif %}{% endfor %}",
    BIG + "{% for i in range(99999) %}{{ x | replace('b', '') | length }}{% endfor %}",
    BIG + "{{ " + "x == y and " * 2500 + "1 }}",
    "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = n.l + [i] %}{% endfor %}",
    "{% set n = namespace(x='') %}{% for i in range(99999) %}"
    "{% set n.x = n.x ~ messages[0].content ~ '.' %}{% endfor %}",
]
BOMBS = [
    "{{ 'a' * 10 ** 10 }}",
    "{{ 10 ** 10 * messages[0].content }}",
    "{{ ['a'] * 10 ** 10 }}",
    "{{ [['a'] * 1000] * 1000 * 99 }}",
    "{{ ('a',) * 10 ** 10 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ (10 ** 1000) ** 1000 }}",
    "{{ (2 ** 4000) * (2 ** 4000) * (2 ** 4000) }}",
    "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=1) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}",
    "{% set n = namespace(x=1) %}{% for i in range(99) %}{% set n.x = (n.x, n.x) %}{% endfor %}",
    "{% set n = namespace(x=1) %}{% for i in range(99) %}{% set n.x = {1: n.x, 2: n.x} %}"
    "{% endfor %}",
    "{% set n = namespace(x=1) %}{% for i in range(99999) %}{% set n.x = (n.x,) %}{% endfor %}",
    "{% set n = namespace(x=1) %}{% for i in range(99) %}{% set n.x = dict(a=n.x, b=n.x) %}"
    "{% endfor %}",
    *("{{ 'a'." + name + "(10 ** 10) }}" for name in ("center", "ljust", "rjust", "zfill")),
    "{{ '\\t'.expandtabs(10 ** 10) }}",
    "{{ 'a' | center(10 ** 10) }}",
    "{{ 'a' | indent(10 ** 10) }}",
    "{{ ('a\\n' * 99999) | indent(9999) }}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '%.9999999999f' % 1 }}",
    "{{ '%*d' % (9999999999, 1) }}",
    "{{ '%9999999999s' | format('a') }}",
    "{{ '{:9999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 9999999999) }}",
    "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
    "{{ ('a' * 1000000) | replace('', 'b' * 1000000) }}",
    "{{ ('a' * 1000000).join(['b'] * 99999) }}",
    "{{ (['b'] * 99999) | join('a' * 1000000) }}",
    "{{ ('a ' * 4000000).split() }}",
    "{{ ('a ' * 4000000).split(' ') }}",
    "{{ ('a\\n' * 4000000).splitlines() }}",
    "{{ ('a' * 8000000) | list }}",
    "{{ ''.join('a' * 8000000) }}",
    "{{ range(10 ** 12) | list }}",
    "{{ range(99999) | slice(10 ** 12) | list }}",
    "{{ [1] | batch(10 ** 12, 'x') | list }}",
    "{{ messages | tojson(indent=10 ** 10) }}",
    "{{ ('9' * 8000000) | int }}",
    "{{ ('f' * 8000000) | int(base=16) }}",
    "{{ 5 | round(-10 ** 9) }}",
    "{{ range(99999) | map('list') | sum(start=[]) }}",
    "{{ (255).to_bytes(10 ** 10, 'little') }}",
    BIG + "{{ x.rfind('b' + y[:4000000]) }}",
    BIG + "{{ x.strip('b' * 4000000 + 'a') }}",
    BIG + "{{ [x, y] }}",
    BIG
    + "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = n.l + [x[1:]] %}"
    + "{% endfor %}",
    BIG + "{% for i in range(9999) %}{{ x }}{% endfor %}",
    BIG + "{% set z %}{% for i in range(9999) %}{{ x }}{% endfor %}{% endset %}",
    BIG + "{% set z %}{% for i in range(9999) %}{{ x ~ i }}{% endfor %}{% endset %}",
    BIG + "{% macro f() %}{{ x }}{{ x }}{% endmacro %}{{ f() }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% block b %}{{ self.b() }}{% endblock %}",
    "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{{ lipsum(10 ** 9) }}",
]
OVERSIZED = [
    "x" * (256 * 1024 + 1),
    "é" * (128 * 1024 + 1),
    "{{ a }}" * 30_000,
    "{" * 200_000,
    "{% if 1 %}" * 20_000,
    "{{ " + "(" * 8_000 + "1" + ")" * 8_000 + " }}",
    "{{ a" + ".b" * 8_000 + " }}",
    "{{ 1" + "+1" * 8_000 + " }}",
    "{{ " + "not " * 8_000 + "1 }}",
    "{% if 1 %}" * 300 + "{% endif %}" * 300,
]
ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ (''|attr('__class__')).__mro__ }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ ('{0.__class__.__mro__}' | attr('format'))('') }}",
    "{{ ['{0.__class__.__mro__}'] | map('format', '') | list }}{{ ''.__class__.x }}",
    "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
    "{{ '%s' % ''.__class__.__mro__ }}",
    "{{ ['a'] | map(attribute='__class__.__mro__') | list }}",
    "{{ messages.__class__.__init__.__globals__ }}",
    "{{ messages[0].content.__class__.__mro__ }}",
    "{{ messages[0].content.content.__class__.__mro__ }}",
    "{{ messages[0].content.translate({97: 'b'}) }}",
    "{{ messages[0].content.encode().decode() }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'a': 1}) }}",
    "{{ [].sort() }}",
    "{{ messages.size.weight.real.x }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ joiner().__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ namespace(__class__=1) }}",
    "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    "{{ dict.__call__.__globals__ }}",
    "{{ dict.mro() }}",
    "{{ range.__self__.x }}",
    "{{ raise_exception.__globals__.os }}",
    "{{ strftime_now.__code__.co_code }}",
    "{{ strftime_now.__wrapped__.x }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context.x }}",
    "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "{% for x in [1] %}{{ loop._iterable.x }}{{ loop.__class__.__mro__ }}{% endfor %}",
    "{{ (messages | map('upper')).gi_frame.f_globals }}",
    "{{ (1).real.__class__.__mro__ }}",
    "{{ caller.__class__.__mro__ }}{{ undefined.__init__.__globals__ }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% from 'os' import system %}",
    "{% extends '/etc/passwd' %}",
    "{% autoescape true %}x{% endautoescape %}",
    "{{ messages | random }}",
    "{{ messages | pprint }}",
    "{{ namespace }}",
    "{{ messages | map('upper') }}",
]


def assert_error_within(seconds: float, source: str) -> None:
    started = time.thread_time()
    with pytest.raises(ChatTemplateError) as caught:
        attack(source)
    assert time.thread_time() - started < seconds
    assert len(str(caught.value)) < 400
    assert attack("{{ messages[0].content }}") == "hello"


@pytest.mark.parametrize("source", BOMBS + OVERSIZED + ENDLESS[:2])
def test_too_much_is_an_error_in_time(source: str) -> None:
    assert_error_within(1.0, source)


@pytest.mark.parametrize("source", ENDLESS)
def test_a_shorter_limit_is_kept_as_well(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_CPU_SECONDS", 0.1)
    assert_error_within(0.6, source)  # 0.5 for compiling the longest sources


@pytest.mark.parametrize("source", ESCAPES)
def test_nothing_outside_the_template_is_reached(source: str) -> None:
    with pytest.raises(ChatTemplateError):
        attack(source)
    assert [message["content"] for message in MESSAGES] == ["hello"]


def test_memory_stays_bounded() -> None:
    """All of the above in a process of its own, which reports its peak."""
    script = (
        "import json, sys\n"
        "from farthing.errors import ChatTemplateError\n"
        "from farthing.tokenization import ChatTemplate\n"
        # Unlike ru_maxrss, which a child inherits, VmHWM is of this program's memory alone.
        "def peak():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(x.split()[1]) for x in lines if x.startswith('VmHWM'))\n"
        "ChatTemplate('x').render([])\n"
        "before = peak()\n"
        "for source in json.load(sys.stdin):\n"
        "    try:\n"
        "        ChatTemplate(source).render([{'role': 'user', 'content': 'hello'}])\n"
        "    except ChatTemplateError:\n"
        "        continue\n"
        "    raise SystemExit(f'no error from {source[:80]}')\n"
        "print(peak() - before)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(BOMBS + OVERSIZED + ENDLESS[2:3]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 256 * 1024  # KiB


def test_a_long_chat_is_within_the_limits() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
        "{% endfor %}"
    )
    one = "word <|im_end|> " * 4
    messages = [{"role": "user", "content": one}] * 3_000
    segments = template.render(messages)
    assert segments[1] == Segment(one, False)
    assert len(segments) == 6_001
    big = [{"role": "user", "content": "x" * 4_000_000}]
    assert template.render(big)[1].text == big[0]["content"]
    with pytest.raises(ChatTemplateError, match="8388608"):
        template.render([{"role": "user", "content": "x" * 9_000_000}])


def test_a_message_nested_too_deeply_is_refused() -> None:
    nested: Any = "x"
    for _ in range(5_000):
        nested = [nested]
    for depth in (nested, [nested]):
        with pytest.raises(ChatTemplateError, match=r"deep|nested"):
            ChatTemplate("x").render([{"role": "user", "content": depth}])


def test_threads_render_at_once_without_sharing_a_budget() -> None:
    template = ChatTemplate("{% for i in range(2000) %}{{ messages[0].content }}{% endfor %}")
    results: list[str] = []

    def render(word: str) -> None:
        text = "".join(s.text for s in template.render([{"role": "user", "content": word}]))
        results.append(text)

    words = [str(i) for i in range(8)]
    threads = [threading.Thread(target=render, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [word * 2000 for word in words]


def test_a_rendering_is_quick_and_compiling_is_done_once() -> None:
    template = ChatTemplate(
        "{% for m in messages %}<|im_start|>{{ m.role ~ m.content }}{% endfor %}"
    )
    messages = MESSAGES * 20
    template.render(messages)
    started = time.thread_time()
    for _ in range(10):
        template.render(messages)
    assert (time.thread_time() - started) / 10 < 0.005


def test_importing_tokenization_imports_nothing_heavy() -> None:
    script = (
        "import sys, farthing.tokenization\n"
        "heavy = {'jinja2', 'tokenizers', 'numpy', 'huggingface_hub'} & set(sys.modules)\n"
        "raise SystemExit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
