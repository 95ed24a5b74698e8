"""What a model is asked: the same text for those that chat and those that only continue."""

from __future__ import annotations

from farthing.evaluation.battery.items import Item

MAX_ANSWER_TOKENS = 16
STOP = "\n"

# Of other subjects than the built-in questions, and short in their answers.
_EXAMPLES = (
    ("Which colour does grass have?", "Green"),
    ("How many legs does a spider have?", "8"),
    ("In which month is Christmas Day?", "December"),
    ("Who flies an aeroplane?", "A pilot"),
)


def prompt(item: Item) -> str:
    """The text whose greedy continuation, up to the line's end, is the model's answer.

    No chat template: base and instruct models are asked alike, and a quantized model is asked as
    its reference was. It ends without a blank, which tokenizers put before a word themselves.
    """
    asked = [f"Question: {question}\nAnswer: {answer}\n" for question, answer in _EXAMPLES]
    return "\n".join([*asked, f"Question: {item.question}\nAnswer:"])
