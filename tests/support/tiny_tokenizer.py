"""A small byte-level BPE tokenizer trained on a few sentences, with a chat template."""

from __future__ import annotations

from functools import cache

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TOKENIZER_SIZE = 331
"""Tokens, special ones included: odd, so that it straddles every vector width."""

SPECIAL_TOKENS = ("<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>")
BOS_ID, EOS_ID = 0, 3

_TEXT = (
    "The miller weighs the flour, the baker weighs the bread; a farthing is a fourth of a penny.",
    "def reverse(node):\n    previous = None\n    while node:\n        node.next, previous, node = "
    "previous, node, node.next\n    return previous\n",
    "Über den Wipfeln ist Ruh; en el agua clara; 水は方円の器に随う; зима долгая; 🌾🍞",
    "1 + 1 = 2, 12 + 30 = 42, 1789, 3.14159",
)

_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@cache
def _trained() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENIZER_SIZE,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT * 2, trainer)
    return tokenizer.to_str()


def tiny_tokenizer(architecture: str) -> transformers.PreTrainedTokenizerFast:
    """The tokenizer as a model of ``architecture`` has it: Llama's begins with ``<|begin|>``."""
    tokenizer = Tokenizer.from_str(_trained())
    if architecture == "llama":
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{SPECIAL_TOKENS[BOS_ID]} $A", special_tokens=[(SPECIAL_TOKENS[BOS_ID], BOS_ID)]
        )
    return transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=SPECIAL_TOKENS[BOS_ID],
        eos_token=SPECIAL_TOKENS[EOS_ID],
        chat_template=_CHAT_TEMPLATE,
    )
