"""Text to token ids and back, for one model's vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from farthing.errors import InvalidParameterError, TooManyTokensError
from farthing.tokenization.backend import Backend
from farthing.tokenization.control import ControlFinder
from farthing.tokenization.least_tokens import Kept, LeastTokens
from farthing.tokenization.source import GgufVocabulary, JsonTokenizerFile, TokenizerSource


class Tokenizer:
    """A vocabulary with its rules. Safe to use from several threads at once.

    Control tokens (turn markers, end of text) come from text only where the caller allows it;
    anywhere else their spelling is encoded like any other text.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._finder = ControlFinder(backend.control)
        self._bytes: list[bytes | None] = [None] * len(backend.tokens)
        self.control_ids: frozenset[int] = frozenset(t.id for t in backend.control.values())
        self.control_tokens: tuple[str, ...] = tuple(backend.control)

    @classmethod
    def from_source(cls, source: TokenizerSource) -> Tokenizer:
        """The tokenizer a checkpoint describes. Raises ModelFormatError."""
        if isinstance(source, GgufVocabulary):
            return cls.from_gguf(source)
        from farthing.tokenization.json_backend import json_backend

        return cls(json_backend(source))

    @classmethod
    def from_gguf(cls, vocabulary: GgufVocabulary) -> Tokenizer:
        """The tokenizer of a GGUF file's metadata. Raises ModelFormatError naming the key."""
        from farthing.tokenization.gguf_backend import gguf_backend

        return cls(gguf_backend(vocabulary))

    @classmethod
    def from_file(
        cls, tokenizer_json: Path, config: Mapping[str, object] | None = None
    ) -> Tokenizer:
        """A ``tokenizer.json`` with its ``tokenizer_config.json``. Raises ModelFormatError."""
        return cls.from_source(JsonTokenizerFile(Path(tokenizer_json), config or {}))

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that has a string."""
        return len(self._backend.tokens)

    @property
    def bos_token_id(self) -> int | None:
        """Id that begins a text, if the vocabulary has one."""
        return self._backend.bos_id

    @property
    def beginning(self) -> tuple[int, ...]:
        """Ids that ``add_special_tokens`` puts before a text."""
        return tuple(self._backend.prefix)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer, the declared one first."""
        return self._backend.eos_ids

    @property
    def bos_token(self) -> str | None:
        """Spelling of the beginning-of-text token."""
        return None if self._backend.bos_id is None else self.id_to_token(self._backend.bos_id)

    @property
    def eos_token(self) -> str | None:
        """Spelling of the declared end-of-text token."""
        return None if self._backend.eos_id is None else self.id_to_token(self._backend.eos_id)

    def token_to_id(self, token: str) -> int | None:
        """Id of a vocabulary string (in the vocabulary's own alphabet), None if it has none."""
        return self._backend.ids.get(token)

    def id_to_token(self, token_id: int) -> str | None:
        """Vocabulary string of an id, None for an id without one."""
        if 0 <= token_id < len(self._backend.tokens):
            return self._backend.tokens[token_id]
        return None

    @cached_property
    def least_tokens(self) -> LeastTokens:
        """Of any text; takes tenths of a second to make."""
        backend = self._backend
        ids = range(len(backend.tokens) if backend.kept is not Kept.UNKNOWN else 0)
        tokens = map(self.token_bytes, ids)
        return LeastTokens(tokens, backend.kept, escaped=backend.escapes_spaces)

    def encode(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        allow_control: bool = False,
        most: int | None = None,
    ) -> list[int]:
        """Token ids of ``text``.

        ``add_special_tokens`` puts the vocabulary's own beginning and end around it;
        ``allow_control`` lets the spelling of a control token be that token, and is for text the
        caller wrote, not for text it was given. Raises InvalidParameterError if ``text`` has a
        lone surrogate, and as :meth:`encode_parts` does.
        """
        ids = self.encode_parts([(text, allow_control)], most)
        if add_special_tokens:
            return [*self._backend.prefix, *ids, *self._backend.suffix]
        return ids

    def encode_parts(self, parts: Iterable[tuple[str, bool]], most: int | None = None) -> list[int]:
        """Token ids of the parts' texts joined, nothing added.

        A control token is recognized only where all of it lies in parts marked True. Between
        control tokens the parts are encoded as one text: their seams leave no trace. Raises
        :class:`TooManyTokensError` where more than ``most`` must come of them and that is plain
        without encoding; there may be more without it.
        """
        texts: list[str] = []
        allowed: list[tuple[int, int]] = []
        position = 0
        for text, allow_control in parts:
            end = position + len(text)
            if allow_control and text:
                if allowed and allowed[-1][1] == position:
                    allowed[-1] = (allowed[-1][0], end)
                else:
                    allowed.append((position, end))
            texts.append(text)
            position = end
        whole = "".join(texts)
        raw = _utf8(whole)
        if most is not None and len(raw) > most and (least := self.least_tokens.of(raw)) > most:
            raise TooManyTokensError(least, most)
        ids: list[int] = []
        position = 0
        for start, stop, control_id in self._finder.find(whole, allowed):
            ids += self._encode_plain(whole[position:start], at_start=position == 0)
            ids.append(control_id)
            position = stop
        return ids + self._encode_plain(whole[position:], at_start=position == 0)

    def encode_continuation(self, text: str) -> list[int]:
        """Token ids of ``text`` as it stands behind other text: nothing added, none of it control.

        Raises InvalidParameterError if ``text`` has a lone surrogate.
        """
        _utf8(text)
        return self._encode_plain(text, at_start=False)

    def _encode_plain(self, text: str, *, at_start: bool) -> list[int]:
        return self._backend.core.encode(text, at_start=at_start) if text else []

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes a token stands for; empty for an id without a string.

        A control token stands for its spelling. Raises InvalidParameterError below 0.
        """
        if token_id < 0:
            raise InvalidParameterError(f"token id {token_id} is negative")
        if token_id >= len(self._bytes):
            return b""
        known = self._bytes[token_id]
        if known is None:
            token = self._backend.tokens[token_id]
            if token is None:
                known = b""
            elif token_id in self._backend.literal_ids:
                known = token.encode("utf-8", "surrogatepass")
            else:
                known = self._backend.piece_bytes(token)
            self._bytes[token_id] = known
        return known

    @property
    def strips_first_space(self) -> bool:
        """Whether a whole text's first space is an artefact of encoding, dropped by decode."""
        return self._backend.strips_first_space

    def decode(
        self, ids: Sequence[int], skip_special: bool = True, *, continuation: bool = False
    ) -> str:
        """Text of ``ids``; bytes that are not UTF-8 become U+FFFD.

        ``skip_special`` leaves control tokens out. ``continuation``: the ids follow others, so a
        first space belongs to the text.
        """
        data = b"".join(
            [self.token_bytes(i) for i in ids if not (skip_special and i in self.control_ids)]
        )
        if self.strips_first_space and not continuation:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidParameterError(
            f"text has a lone surrogate (U+{ord(text[error.start]):04X}) at character "
            f"{error.start}; it must be valid Unicode"
        ) from None
