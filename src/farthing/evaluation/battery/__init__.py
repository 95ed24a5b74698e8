"""Questions with known answers: the built-in ones, those of one's own, and what counts as right."""

from __future__ import annotations

from farthing.evaluation.battery.items import Battery, Item
from farthing.evaluation.battery.judging import is_right
from farthing.evaluation.battery.prompt import MAX_ANSWER_TOKENS, STOP, prompt
from farthing.evaluation.battery.reading import BUILT_IN, load_battery

__all__ = [
    "BUILT_IN",
    "MAX_ANSWER_TOKENS",
    "STOP",
    "Battery",
    "Item",
    "is_right",
    "load_battery",
    "prompt",
]
