"""Charging points that a parsed template is given before it is compiled."""

from __future__ import annotations

from typing import Any, TypeVar

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from farthing.errors import ChatTemplateError

_BodyNode = TypeVar("_BodyNode", nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)


def rewritten(template: nodes.Template) -> nodes.Template:
    """``template`` with every loop, macro, display, slice, ``~`` and comparison accounted for."""
    rewriter = _Rewriter()
    rewriter.generic_visit(template)
    return template


def _filtered(name: str, value: nodes.Expr, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(arguments), [], None, None, lineno=value.lineno)


def _charge(node: nodes.Node) -> nodes.Filter:
    steps = sum(1 for _ in node.find_all(nodes.Node))
    return _filtered("$charge", nodes.Const(steps, lineno=node.lineno))


class _Rewriter(NodeTransformer):
    """Each method gives the node that takes the visited one's place."""

    def _with_charged_body(self, node: _BodyNode) -> _BodyNode:
        point = nodes.ExprStmt(_charge(node), lineno=node.lineno)
        self.generic_visit(node)
        node.body.insert(0, point)
        return node

    visit_Macro = visit_CallBlock = visit_Block = _with_charged_body  # noqa: N815

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        test_point = None if node.test is None else _charge(node.test)
        self._with_charged_body(node)
        if node.test is not None and test_point is not None:
            node.test = nodes.And(test_point, node.test, lineno=node.lineno)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered("$made", node)

    visit_Dict = visit_List  # noqa: N815

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered("$made", node) if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        parts = [
            nodes.Const(None, lineno=node.lineno) if part is None else part
            for part in (node.arg.start, node.arg.stop, node.arg.step)
        ]
        return _filtered("$slice", node.node, *parts)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered("$tilde", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        self.generic_visit(node)
        node.expr = _read(node.expr)
        for operand in node.ops:
            operand.expr = _read(operand.expr)
        return node

    def visit_ScopedEvalContextModifier(self, node: Any) -> Any:  # noqa: N802
        raise ChatTemplateError(
            f"the chat template turns on autoescape (line {node.lineno}), which is not supported"
        )

    visit_EvalContextModifier = visit_ScopedEvalContextModifier  # noqa: N815


def _read(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _filtered("$read", node)
