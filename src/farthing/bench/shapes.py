"""Models that are only a shape: Qwen2.5's sizes, or numbers given one by one."""

from __future__ import annotations

from types import MappingProxyType

from farthing.config import ModelConfig, Rope
from farthing.errors import InvalidParameterError
from farthing.models.checkpoint import limits

_QWEN2_5 = MappingProxyType(  # Qwen2.5 technical report (Yang et al. 2024), table 1, and configs
    {
        # name: layers, hidden, intermediate, heads, kv heads, head dim, vocabulary, tied
        "0.5b": (24, 896, 4864, 14, 2, 64, 151_936, True),
        "1.5b": (28, 1536, 8960, 12, 2, 128, 151_936, True),
        "3b": (36, 2048, 11_008, 16, 2, 128, 151_936, True),
        "7b": (28, 3584, 18_944, 28, 4, 128, 152_064, False),
        "14b": (48, 5120, 13_824, 40, 8, 128, 152_064, False),
    }
)

NAMES = tuple(name.upper() for name in _QWEN2_5)
"""The shapes that have a name."""

_MOST = MappingProxyType(  # as of the models that can be opened
    {
        "layers": limits.MAX_LAYERS,
        "hidden": limits.MAX_WIDTH,
        "intermediate": limits.MAX_WIDTH,
        "heads": limits.MAX_HEADS,
        "kv_heads": limits.MAX_HEADS,
        "head_dim": limits.MAX_HEAD_DIM,
        "vocab": limits.MAX_VOCABULARY,
    }
)
_FIELDS = tuple(_MOST)
_CONTEXT = 131_072


def parse_shape(text: str) -> ModelConfig:
    """The configuration of ``text``, a name or ``layers=24,hidden=896,...``.

    The numbers are layers, hidden, intermediate, heads, kv_heads, head_dim, vocab, all but head_dim
    needed; the head shares the embedding's matrix. Raises :class:`InvalidParameterError`.
    """
    if "=" not in text:
        try:
            *numbers, tied = _QWEN2_5[text.lower()]
        except KeyError:
            raise InvalidParameterError(
                f"--shape {text!r}: must be one of {', '.join(NAMES)}, or "
                f"{','.join(f'{name}=N' for name in _FIELDS)}"
            ) from None
        return _config(*numbers, tied=tied)
    given: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if name not in _FIELDS or name in given:
            problem = "twice" if name in given else f"not one of {', '.join(_FIELDS)}"
            raise InvalidParameterError(f"--shape {text!r}: {name!r} is {problem}")
        number = whole_number(value.strip(), 1, _MOST[name])
        if number is None:
            raise InvalidParameterError(
                f"--shape {text!r}: {name} must be a whole number from 1 to {_MOST[name]}"
            )
        given[name] = number
    missing = [name for name in _FIELDS if name not in given and name != "head_dim"]
    if missing:
        raise InvalidParameterError(f"--shape {text!r}: {', '.join(missing)} missing")
    given.setdefault("head_dim", max(given["hidden"] // given["heads"], 1))
    if given["heads"] % given["kv_heads"]:
        raise InvalidParameterError(
            f"--shape {text!r}: {given['heads']} heads cannot share {given['kv_heads']} kv_heads"
        )
    if given["head_dim"] % 16 or given["head_dim"] > limits.MAX_HEAD_DIM:
        raise InvalidParameterError(
            f"--shape {text!r}: head_dim={given['head_dim']} must be a multiple of 16, at most "
            f"{limits.MAX_HEAD_DIM}"
        )
    return _config(*(given[name] for name in _FIELDS), tied=True)


def whole_number(text: str, least: int, most: int) -> int | None:
    """The number of ``text``, None unless it is a whole one from ``least`` to ``most``.

    However many digits there are: ``int`` refuses some thousands of them by an error of its own.
    """
    digits = text.lstrip("0") or "0"
    if not text.isdecimal() or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if least <= number <= most else None


def _config(
    layers: int,
    hidden: int,
    intermediate: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    vocab: int,
    *,
    tied: bool,
) -> ModelConfig:
    return ModelConfig(
        architecture="qwen2",
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab,
        context_length=_CONTEXT,
        rms_norm_eps=1e-6,
        rope=Rope(1_000_000.0, head_dim),
        attention_bias=True,
        tie_word_embeddings=tied,
    )
