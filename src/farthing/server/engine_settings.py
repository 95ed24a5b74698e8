"""All that the engine process is told before anything else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from farthing.engine.batching import BATCHING, BatchingName
from farthing.engine.build import EngineOptions
from farthing.engine.engine import KvName, caches_prefixes
from farthing.engine.model_loader import LoadOptions
from farthing.engine.prefix_store import check_prefix_folder
from farthing.llm_arguments import check_counts, check_names
from farthing.models.adapter import open_adapter
from farthing.program.kv_types import KvDtype
from farthing.program.native import FloatMode
from farthing.program.weights import WeightPlacement
from farthing.server.observation.logs import LogSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How a model is loaded and served; names and defaults as in :class:`farthing.llm.LLM`.

    ``model`` is a file or directory that is here; ``max_prefill_chunk`` the most tokens of prompts
    that a pass reads beside running streams, None: as many as it has room for.

    Raises :class:`InvalidParameterError` for what no model could be served with.
    """

    model: Path
    adapter: Path | None = None
    weights: WeightPlacement = "mmap"
    kv_cache_dtype: KvDtype = "fp16"
    max_model_len: int | None = None
    num_threads: int | None = None
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    max_prefill_chunk: int | None = None
    kv_cache_tokens: int | None = None
    kv_cache_memory_bytes: int | None = None
    enable_prefix_caching: bool = True
    prefix_cache: Path | None = None  # a folder
    prefix_cache_bytes: int | None = None
    fair_share: bool = True
    batching: BatchingName = "continuous"
    kv: KvName = "paged"
    use_cache: bool = True
    logs: LogSettings = field(default_factory=LogSettings)
    measure_bandwidth: bool = True  # of reading memory, an eighth of a second

    def __post_init__(self) -> None:
        check_counts(
            max_model_len=self.max_model_len,
            num_threads=self.num_threads,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_prefill_chunk=self.max_prefill_chunk,
            kv_cache_tokens=self.kv_cache_tokens,
            kv_cache_memory_bytes=self.kv_cache_memory_bytes,
            prefix_cache_bytes=self.prefix_cache_bytes,
        )
        check_names("batching", self.batching, BATCHING)
        check_names("kv", self.kv, get_args(KvName))
        check_prefix_folder(
            self.prefix_cache,
            caches=caches_prefixes(self.kv, self.enable_prefix_caching, self.use_cache),
        )

    def load_options(self) -> LoadOptions:
        """What the loader is told. Reads the adapter; raises what :func:`open_adapter` does."""
        with FloatMode():
            adapter = None if self.adapter is None else open_adapter(self.adapter)
        return LoadOptions(
            kv_cache_dtype=self.kv_cache_dtype,
            max_model_len=self.max_model_len,
            num_threads=self.num_threads,
            max_num_batched_tokens=self.max_num_batched_tokens,
            kv_cache_tokens=self.kv_cache_tokens,
            kv_cache_memory_bytes=self.kv_cache_memory_bytes,
            adapter=adapter,
            weights=self.weights,
        )

    def engine_options(self) -> EngineOptions:
        """What the engine is told."""
        return EngineOptions(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_prefill_chunk=self.max_prefill_chunk,
            enable_prefix_caching=self.enable_prefix_caching,
            batching=self.batching,
            kv=self.kv,
            fair_share=self.fair_share,
            use_cache=self.use_cache,
        )
