"""A command whose parameters are the fields of dataclasses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, get_type_hints


def parameters_of(*groups: type) -> dict[str, inspect.Parameter]:
    """The fields of all ``groups`` in order, by name."""
    return {
        field.name: inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=field.default,
            annotation=get_type_hints(group, include_extras=True)[field.name],
        )
        for group in groups
        for field in fields(group)
    }


def with_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """``command``, which takes keyword arguments, with a signature that typer can read."""
    command.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def groups_from(groups: Sequence[type], values: dict[str, Any]) -> list[Any]:
    """An instance of each group from the values of all."""
    return [
        group(**{field.name: values[field.name] for field in fields(group)}) for group in groups
    ]
