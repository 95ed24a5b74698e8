"""Makes matchers of grammars, for one model's vocabulary."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.matcher import GrammarMatcher
from farthing.sampling.grammar.params import StructuredOutputsParams
from farthing.sampling.grammar.translation import limits, one_line
from farthing.sampling.grammar.vocabulary import GrammarVocabulary, PreparedVocabulary


class GrammarCompiler:
    """Compiles grammars when a request is made. Safe to use from several threads at once.

    The vocabulary is prepared for the first grammar: a model without any pays nothing.
    """

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        self._prepared: PreparedVocabulary | None = None
        self._lock = threading.Lock()

    def matcher(
        self,
        params: StructuredOutputsParams,
        *,
        ignore_eos: bool = False,
        accepted: Iterable[int] = (),
    ) -> GrammarMatcher:
        """A matcher for one request, after the tokens ``accepted``.

        Raises :class:`InvalidParameterError` if this vocabulary makes the grammar too complex or
        cannot write it.
        """
        import llguidance

        prepared = self.prepare()
        compiled = llguidance.LLMatcher(
            prepared.tokenizer, params.translated(), log_level=0, limits=limits(params.kind)
        )
        if compiled.is_error():
            raise InvalidParameterError(f"{params.called}: {one_line(compiled.get_error())}")
        vocabulary = self._vocabulary
        matcher = GrammarMatcher(
            compiled,
            prepared,
            vocab_size=vocabulary.vocab_size,
            ends=vocabulary.ends,
            prefer_more=ignore_eos,
        )
        for token in accepted:
            if matcher.error is None:
                matcher.accept(token)
        return matcher

    def prepare(self) -> PreparedVocabulary:
        """Prepares the vocabulary if that is not done yet."""
        with self._lock:
            if self._prepared is None:
                self._prepared = self._vocabulary.build()
            return self._prepared
