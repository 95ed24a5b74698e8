"""What a request asks of generation, checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from farthing.sampling.checks import Checks
from farthing.sampling.grammar.params import StructuredOutputsParams

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them would overflow."""

MAX_CHOICES = 16
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_BYTES = 256
MAX_BAD_WORDS = 1024

DRY_SEQUENCE_BREAKERS = ("\n", ":", '"', "*")
"""What llama.cpp's server takes."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters of one request; names and defaults as in the OpenAI API and vLLM.

    Which token comes next, in the order in which the parameters act on the logits:

    1. ``repetition_penalty`` divides positive logits of tokens in prompt or output by it and
       multiplies negative ones; ``frequency_penalty`` is subtracted as often as the token was
       generated, ``presence_penalty`` once.
    2. DRY (``dry_multiplier`` above 0) subtracts ``dry_multiplier * dry_base ** (n -
       dry_allowed_length)`` from a token that would continue a repetition of n tokens, n at least
       ``dry_allowed_length``, within the last ``dry_penalty_last_n`` tokens (-1: all; 0: off).
       Nothing before one of ``dry_sequence_breakers`` counts as repeated. Names as in llama.cpp.
    3. ``logit_bias`` (-100 to 100 by token id) is added.
    4. Only ``allowed_token_ids`` stay; the last token of a ``bad_words`` entry that the output has
       up to it goes, with and without a space in front; until ``min_tokens`` are generated, so do
       the tokens that end the text, and stop strings are not looked for.
    5. ``temperature`` divides; 0 (below 1e-5) is greedy: the highest logit, the lowest id among
       equals.
    6. ``top_k`` (0 or -1: off), ``top_p``, ``min_p`` and ``typical_p``, each on what the one before
       it left.
    7. A draw with Gumbel noise keyed by ``seed`` (None is replaced by a random one, kept with the
       request), position and token.

    ``max_tokens`` None generates until the end of sequence or a full context, which is the limit of
    a larger value too. ``stop`` strings end the text before their first occurrence;
    ``stop_token_ids`` end it like the model's own end-of-sequence tokens, which ``ignore_eos``
    makes ordinary ones. ``logprobs`` n returns the log probabilities of the n likeliest tokens and
    of the chosen one at each position, ``prompt_logprobs`` those of the prompt's tokens: of the
    model's own logits, before any of the above.

    ``n`` continuations are made of the prompt, which is read once; each draws with noise of its
    own.

    ``structured_outputs`` holds the answer to a grammar, beside step 4's: the answer then ends only
    where the grammar may end, and with ``ignore_eos`` only where it cannot go on.

    Raises :class:`InvalidParameterError` naming the parameter and its value; token ids are held
    against the vocabulary when a request is made.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: Sequence[str] = DRY_SEQUENCE_BREAKERS
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured_outputs: StructuredOutputsParams | None = None
    stop_strings: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checks = Checks(self)
        checks.whole("n", 1, MAX_CHOICES)
        checks.number("temperature", 0, 1000)
        checks.whole("top_k", -1, 2**31 - 1, "from 1 below 2**31, or 0 or -1 for off")
        checks.share("top_p")
        checks.number("min_p", 0, 1)
        checks.share("typical_p")
        checks.number("repetition_penalty", 0.01, 100)
        checks.number("presence_penalty", -2, 2)
        checks.number("frequency_penalty", -2, 2)
        checks.number("dry_multiplier", 0, 1000)
        checks.number("dry_base", 1, 1000)
        checks.whole("dry_allowed_length", 1, 2**31 - 1)
        checks.whole("dry_penalty_last_n", -1, 2**31 - 1, "from 1, 0 for off, or -1 for all tokens")
        breakers = checks.texts(
            "dry_sequence_breakers", most=MAX_STOP_STRINGS, most_bytes=MAX_STOP_BYTES
        )
        bias = checks.bias("logit_bias", 100)
        allowed = checks.token_ids("allowed_token_ids", least=1)
        bad_words = checks.texts("bad_words", most=MAX_BAD_WORDS, most_bytes=MAX_STOP_BYTES)
        checks.whole_or_none("max_tokens", 1, None, "at least 1, or None for all the context")
        checks.whole("min_tokens", 0, 2**31 - 1)
        if self.max_tokens is not None:
            checks.require(
                self.min_tokens <= self.max_tokens,
                "min_tokens",
                self.min_tokens,
                f"at most max_tokens={self.max_tokens}",
            )
        stops = checks.texts("stop", most=MAX_STOP_STRINGS, most_bytes=MAX_STOP_BYTES)
        stop_ids = checks.token_ids("stop_token_ids")
        for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens"):
            checks.flag(name)
        checks.whole_or_none("seed", 0, 2**64 - 1, "a whole number from 0 below 2**64")
        checks.whole_or_none("logprobs", 0, MAX_LOGPROBS)
        checks.whole_or_none("prompt_logprobs", 0, MAX_LOGPROBS)
        checks.require(
            isinstance(self.structured_outputs, StructuredOutputsParams | None),
            "structured_outputs",
            type(self.structured_outputs).__name__,
            "StructuredOutputsParams or None",
        )
        for name, value in (  # the caller's own objects may change or be read only once
            ("dry_sequence_breakers", breakers),
            ("logit_bias", bias),
            ("allowed_token_ids", allowed),
            ("bad_words", bad_words),
            ("stop_strings", stops),
            ("stop_token_ids", stop_ids),
        ):
            object.__setattr__(self, name, value)

    @property
    def greedy(self) -> bool:
        """True when the token is the highest logit, without noise."""
        return self.temperature < GREEDY_BELOW
