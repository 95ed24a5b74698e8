"""The jinja2 environment of chat templates.

As the ones the models' authors wrote for (``trim_blocks``, ``lstrip_blocks``, loop controls,
``tojson`` without HTML escapes, ``raise_exception``, ``strftime_now``, ``{% generation %}``), in
jinja2's immutable sandbox, with every operation that can grow a value or take long accounted for.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Cycler, Joiner, Namespace

from farthing.errors import ChatTemplateError
from farthing.tokenization.sandbox.budget import MAX_SOURCE_BYTES, MAX_SOURCE_TOKENS, budget
from farthing.tokenization.sandbox.filters import REWRITE_FILTERS, filter_table, test_table
from farthing.tokenization.sandbox.operators import BINARY_OPERATORS, binary
from farthing.tokenization.sandbox.provenance import as_content
from farthing.tokenization.sandbox.rewrite import rewritten
from farthing.tokenization.sandbox.strings import STRING_METHODS, call_method, formatted
from farthing.tokenization.sandbox.values import has_content, joined, made, text_of

_LIST_METHODS = frozenset({"copy", "count", "index"})
_DICT_METHODS = frozenset({"copy", "get", "items", "keys", "values"})


class _Generation(Extension):
    """``{% generation %}`` marks the assistant's part for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Namespace(Namespace):
    """A namespace without private attributes."""

    def __init__(*arguments: Any, **named: Any) -> None:
        self, *rest = arguments
        attributes = dict(*rest, **named)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace cannot have an attribute {name!r}")


class _Dict:
    """``dict(...)`` without the attributes of the type."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return made(dict(*arguments, **named))


def _raise_exception(message: Any) -> None:
    raise ChatTemplateError(f"the chat template refuses these messages: {text_of(message)[:200]}")


def _strftime_now(pattern: Any) -> str:
    shown = datetime.datetime.now().strftime(str.__str__(text_of(pattern)[:200]))
    return as_content(shown) if has_content(pattern) else shown


class Compiled(NamedTuple):
    """A template and what its source shows."""

    template: Template
    variables: frozenset[str]  # read and not set
    asks_for_none: bool  # whether it tests if the content of a message is none
    takes_parts: bool  # whether it goes through the parts of a content


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Compiles chat templates; rendering them needs a budget on the thread."""

    intercepted_binops = BINARY_OPERATORS

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, "jinja2.ext.loopcontrols"],
            optimized=False,  # constants are folded without asking the budget
            finalize=_finalize,
            cache_size=0,
        )
        filters: Any = filter_table() | REWRITE_FILTERS
        tests: Any = test_table()
        self.filters, self.tests = filters, tests
        self.globals = {
            "cycler": Cycler,
            "dict": _Dict(),
            "joiner": Joiner,
            "namespace": _Namespace,
            "raise_exception": _raise_exception,
            "range": self.globals["range"],
            "strftime_now": _strftime_now,
        }

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """What a macro, block or ``{% set %}`` block printed, joined."""
        return joined(list(parts))

    def compiled(self, source: str) -> Compiled:
        """Compile ``source``. Raises ChatTemplateError for its size, jinja2's for its syntax."""
        size = len(source.encode("utf-8", "surrogatepass"))
        if size > MAX_SOURCE_BYTES:
            raise ChatTemplateError(
                f"the chat template has {size} bytes; the limit is {MAX_SOURCE_BYTES}"
            )
        for count, _ in enumerate(self.lexer.tokeniter(source, None)):
            if count >= MAX_SOURCE_TOKENS:
                raise ChatTemplateError(
                    f"the chat template has more than {MAX_SOURCE_TOKENS} lexical tokens"
                )
        parsed = self.parse(source)
        variables = frozenset(find_undeclared_variables(parsed))
        asks_for_none = any(_is_content(test.node) for test in _tests_for_none(parsed))
        takes_parts = _goes_through_content(parsed)
        return Compiled(self.from_string(rewritten(parsed)), variables, asks_for_none, takes_parts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return binary(operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in STRING_METHODS
        if isinstance(obj, (list, tuple)):
            return attr in _LIST_METHODS or attr in getattr(obj, "_fields", ())
        if isinstance(obj, dict):
            return attr in _DICT_METHODS
        if type(obj).__module__ not in _MODULES_WITH_ATTRIBUTES:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        if value.__name__ != "format":
            return _no_format_map
        formatter = SandboxedFormatter(self)

        def get_field(name: str, arguments: Any, named: Mapping[str, Any]) -> Any:
            return formatter.get_field(name, arguments, named)[0]

        def format_text(*arguments: Any, **named: Any) -> str:
            return formatted(value.__self__, get_field, arguments, named)

        return format_text

    def call(
        __self,  # noqa: N805 - a template's keyword argument may be called self
        __context: Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        budget().charge(10)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            kwargs.pop("_loop_vars", None)  # jinja2's own, for functions that want the context
            kwargs.pop("_block_vars", None)
            return call_method(owner, __obj.__name__, args, kwargs)
        return made(super().call(__context, __obj, *args, **kwargs))


def _tests_for_none(parsed: nodes.Template) -> Iterator[nodes.Test]:
    return (test for test in parsed.find_all(nodes.Test) if test.name == "none")


def _is_content(node: nodes.Node) -> bool:
    """``content``, ``message.content`` or ``message['content']``, whatever the message's name."""
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Name) and node.name == "content"


def _goes_through_content(parsed: nodes.Template) -> bool:
    """Whether a loop goes through the content of a message, by whatever name it was set."""
    names = {
        each.target.name
        for each in parsed.find_all(nodes.Assign)
        if isinstance(each.target, nodes.Name) and (_is_content(each.node) or _gets(each.node))
    }
    return any(
        _is_content(loop.iter)
        or _gets(loop.iter)
        or (isinstance(loop.iter, nodes.Name) and loop.iter.name in names)
        for loop in parsed.find_all(nodes.For)
    )


def _gets(node: nodes.Node) -> bool:
    """``message.get('content')``."""
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Getattr)
        and node.node.attr == "get"
        and any(isinstance(arg, nodes.Const) and arg.value == "content" for arg in node.args[:1])
    )


_MODULES_WITH_ATTRIBUTES = frozenset({"jinja2.runtime", "jinja2.utils", __name__})


def _no_format_map(*_: Any, **__: Any) -> str:
    raise SecurityError("format_map is not available")


@pass_context  # so that jinja2 does not print constants while it compiles
def _finalize(_: Context, value: Any) -> str:
    return text_of(value)
