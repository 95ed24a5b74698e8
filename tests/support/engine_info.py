"""An engine's description of itself, for tests that change a field or two."""

from __future__ import annotations

from farthing.server.seam.messages import EngineInfo

ENGINE_INFO = EngineInfo(
    max_model_len=2048,
    vocab_size=1000,
    num_blocks=100,
    block_tokens=16,
    max_num_seqs=32,
    max_num_batched_tokens=512,
    num_threads=2,
    isa="avx2",
    fingerprint="w4g32 fp16 1",
    kv_cache_dtype="fp16",
    weight_bytes=1_000_000,
    prefix_caching=True,
    restored_tokens=0,
    kv_block_bytes=4096,
    read_bandwidth=20e9,
)
