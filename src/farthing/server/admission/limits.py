"""How much may wait, and how much one key may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from farthing.errors import InvalidParameterError

LEAST_REQUESTS = 64
TOKENS_OF_A_PLACE = 4096


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What may wait at a time: requests, and tokens of their prompts.

    All that comes passes through the queue, so with fewer places than ``max_num_seqs`` a burst
    cannot fill an idle engine at once. Raises :class:`InvalidParameterError` for less than one.
    """

    max_requests: int
    max_prompt_tokens: int

    def __post_init__(self) -> None:
        """Checks the ranges."""
        check_queue(self.max_requests, self.max_prompt_tokens)

    @classmethod
    def for_engine(
        cls,
        *,
        max_num_seqs: int,
        max_model_len: int,
        max_requests: int | None = None,
        max_prompt_tokens: int | None = None,
    ) -> QueueLimits:
        """The limits given, and in the place of None what suits the engine.

        Requests: two for each that runs, 64 at least. When the last of them begins, the engine has
        about two answers more in each of its places; whoever waits longer is better told how long.
        Tokens: 4,096 for each of those, 262,144 as a rule. So chats meet the first bound and
        documents the second; any one prompt that the model can take fits.
        """
        if max_requests is None:
            max_requests = max(LEAST_REQUESTS, 2 * max_num_seqs)
        if max_prompt_tokens is None:
            max_prompt_tokens = max(TOKENS_OF_A_PLACE * max_requests, max_model_len)
        return cls(max_requests, max_prompt_tokens)


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What each key may do that has no limits of its own; None: no limit.

    Raises :class:`InvalidParameterError` for less than one.
    """

    requests_per_minute: int | None = None
    max_concurrent_requests: int | None = None

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for name in ("requests_per_minute", "max_concurrent_requests"):
            if (value := getattr(self, name)) is not None:
                _require_positive(name, value)


def check_queue(max_requests: int | None, max_prompt_tokens: int | None) -> None:
    """Raises :class:`InvalidParameterError` for less than one; None is none given."""
    why = "; whatever comes passes through the queue, also when nothing else waits"
    if max_requests is not None:
        _require_positive("max_num_queued_reqs", max_requests, why)
    if max_prompt_tokens is not None:
        _require_positive("max_num_queued_tokens", max_prompt_tokens, why)


def _require_positive(name: str, value: int, why: str = "") -> None:
    if value < 1:
        raise InvalidParameterError(f"{name} must be at least 1, not {value}{why}")
