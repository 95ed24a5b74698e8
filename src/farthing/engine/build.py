"""An engine over a model that has been loaded."""

from __future__ import annotations

from dataclasses import dataclass

from farthing.engine.batching import BatchingName
from farthing.engine.engine import Engine, EngineConfig, KvName
from farthing.engine.model_loader import LoadedModel
from farthing.engine.scheduler import SchedulerConfig
from farthing.sampling.grammar.compiler import GrammarCompiler
from farthing.sampling.grammar.vocabulary import GrammarVocabulary
from farthing.sampling.vocabulary import SamplingVocabulary


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine serves; names as in :class:`farthing.llm.LLM`."""

    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    max_prefill_chunk: int | None = None  # rows of prompts in a pass beside running streams
    enable_prefix_caching: bool = True
    batching: BatchingName = "continuous"
    kv: KvName = "paged"
    fair_share: bool = True
    use_cache: bool = True


def build_engine(loaded: LoadedModel, options: EngineOptions) -> Engine:
    """The engine, with nothing to do yet."""
    tokenizer, vocab_size = loaded.tokenizer, loaded.config.vocab_size
    return Engine(
        loaded.runner,
        EngineConfig(
            max_model_len=loaded.max_model_len,
            scheduler=SchedulerConfig(
                max_num_seqs=min(options.max_num_seqs, options.max_num_batched_tokens),
                max_num_batched_tokens=options.max_num_batched_tokens,
                max_prefill_chunk=options.max_prefill_chunk,
                batching=options.batching,
                fair_share=options.fair_share,
                use_cache=options.use_cache,
            ),
            kv=options.kv,
            prefix_caching=options.enable_prefix_caching,
        ),
        vocabulary=SamplingVocabulary(tokenizer, vocab_size),
        eos_token_ids=tokenizer.eos_token_ids,
        grammars=GrammarCompiler(
            GrammarVocabulary(
                vocab_size=vocab_size,
                token_bytes=tokenizer.token_bytes,
                control_ids=tokenizer.control_ids,
                eos_token_ids=tokenizer.eos_token_ids,
                encode=tokenizer.encode_continuation,
            )
        ),
    )
