"""The promise through a saved prefix cache: what is restored has the bits of what is computed."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, SamplingParams
from farthing.engine.outputs import RequestOutput
from farthing.engine.prefix_file import HEADER
from farthing.program import numerics
from support.kv_types import kv_type_params
from support.mutation import mutate
from support.native_runs import make_embedding_infinite
from support.prefix_caches import forge
from support.tiny_adapters import make_tiny_adapter
from support.tiny_models import make_tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=24, logprobs=5, ignore_eos=True)
WARM = 99
"""Cached tokens of a prompt of 100 that was answered before: the last is computed."""

Result = tuple[list[int], list[list[tuple[int, float, int]]]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What is logged; a test that expects something takes it out."""
    told: list[str] = []
    with caplog.at_level(logging.INFO, "farthing"):
        yield told
    assert [record.getMessage() for record in caplog.records] == told


def tokens(seed: int, count: int = 100) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(250) for _ in range(count)]


def load(path: Path, folder: Path | None, **options: Any) -> LLM:
    return LLM(path, prefix_cache=folder, num_threads=2, **{"kv_cache_tokens": 640} | options)


def result(output: RequestOutput) -> Result:
    (completion,) = output.outputs
    assert output.error is None
    assert completion.logprobs is not None
    assert len(completion.token_ids) == len(completion.logprobs) == GREEDY.max_tokens
    assert len({entry.logprob for each in completion.logprobs for entry in each.values()}) > 24
    return completion.token_ids, [
        [(token, entry.logprob, entry.rank) for token, entry in each.items()]
        for each in completion.logprobs
    ]


def answer(llm: LLM, prompt: list[int]) -> tuple[Result, int]:
    """The answer, and the tokens of the prompt that were found cached."""
    (output,) = llm.generate([prompt], GREEDY)
    assert output.metrics is not None
    return result(output), output.metrics.cached_tokens


def blocks_of(llm: LLM) -> int:
    assert llm.engine.prefix_cache is not None
    return len(llm.engine.prefix_cache)


def cold(path: Path, prompt: list[int], **options: Any) -> Result:
    found, cached = answer(load(path, None, **options), prompt)
    assert cached == 0
    return found


@pytest.mark.parametrize("dtype", kv_type_params())
@pytest.mark.parametrize("kind", ["qwen2-tied", "qwen3-moe", "gemma3"])
def test_warm_answers_are_the_cold_ones_bit_for_bit(
    kind: str, dtype: str, folder: Path, tmp_path: Path, warnings: list[str]
) -> None:
    path = make_tiny_model(kind, tmp_path / "model")
    prompts = [tokens(1), tokens(1)[:70] + tokens(2)[:20], tokens(3, 96)]
    expected = [cold(path, prompt, kv_cache_dtype=dtype) for prompt in prompts]
    with load(path, folder, kv_cache_dtype=dtype) as first:
        assert [answer(first, prompt)[0] for prompt in prompts] == expected
    for chunk in (16, 37, 512):
        with load(path, folder, kv_cache_dtype=dtype, max_num_batched_tokens=chunk) as second:
            found = [answer(second, prompt) for prompt in prompts]
        assert [each for each, _ in found] == expected
        assert [cached for _, cached in found] == [99, 89, 95], "all but the last token"
    with load(path, folder, kv_cache_dtype=dtype) as batched:
        assert [result(o) for o in batched.generate(prompts, GREEDY)] == expected


def test_the_comparison_can_fail(directory: Path, folder: Path) -> None:
    """A block with other numbers and right checksums gives other answers: it was read."""
    with load(directory, folder) as llm:
        answer(llm, tokens(1))
        size = llm.runner.kv.block_bytes
    (file,) = folder.glob("*.prefixes")
    third = HEADER.size + 3 * size
    forge(file, data={HEADER.size: file.read_bytes()[third : third + size]})
    with load(directory, folder) as llm:
        found, cached = answer(llm, tokens(1))
    assert cached == WARM
    assert found != cold(directory, tokens(1))


def test_after_evictions_before_and_after_the_save(
    directory: Path, folder: Path, warnings: list[str]
) -> None:
    expected = cold(directory, tokens(1))
    with load(directory, folder, kv_cache_tokens=256) as llm:
        answer(llm, tokens(1))
        answer(llm, tokens(2, 60))
        answer(llm, tokens(4, 60))  # evicts of the first what is last
    with load(directory, folder, kv_cache_tokens=256) as llm:
        found, cached = answer(llm, tokens(1))
        assert found == expected
        assert 0 < cached < WARM
        llm.engine.check_integrity()
        for seed in range(5, 9):
            answer(llm, tokens(seed, 180))
        assert answer(llm, tokens(1))[0] == expected
    with load(directory, folder) as llm:
        assert answer(llm, tokens(1)) == (expected, WARM)
        llm.engine.check_integrity()


def test_after_choices_and_preemptions_no_block_is_left_out(directory: Path, folder: Path) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=60, ignore_eos=True)
    prompts = [tokens(1, 40), tokens(4, 50), tokens(1, 70)]
    with load(directory, folder, kv_cache_tokens=256) as llm:
        first = llm.generate(prompts, params)
        assert llm.engine.metrics.preemptions > 0
        llm.engine.check_integrity()
        count = blocks_of(llm)
    (file,) = folder.glob("*.prefixes")
    assert int.from_bytes(file.read_bytes()[48:56], "little") == count > 10
    with load(directory, folder, kv_cache_tokens=256) as llm:
        assert blocks_of(llm) == count
        second = llm.generate(prompts, params)
        llm.engine.check_integrity()
    assert [[c.token_ids for c in o.outputs] for o in second] == [
        [c.token_ids for c in o.outputs] for o in first
    ]


def test_a_smaller_pool_takes_what_was_used_last(directory: Path, folder: Path) -> None:
    expected = [cold(directory, tokens(seed)) for seed in (1, 2)]
    with load(directory, folder) as llm:
        answer(llm, tokens(1))
        answer(llm, tokens(2))
    with load(directory, folder, kv_cache_tokens=144) as small:
        assert answer(small, tokens(2)) == (expected[1], WARM)
        found, cached = answer(small, tokens(1))
        assert found == expected[0]
        assert cached <= 32
        small.engine.check_integrity()


def test_a_file_is_as_large_as_it_may_be(directory: Path, folder: Path) -> None:
    with load(directory, folder, prefix_cache_bytes=30_000) as llm:
        answer(llm, tokens(1))
        assert blocks_of(llm) * llm.runner.kv.block_bytes > 30_000
    (file,) = folder.glob("*.prefixes")
    assert file.stat().st_size <= 30_000
    with load(directory, folder) as llm:
        assert answer(llm, tokens(1)) == (cold(directory, tokens(1)), 64)


def test_what_was_restored_is_not_written_again(directory: Path, folder: Path) -> None:
    with load(directory, folder) as llm:
        answer(llm, tokens(1))
    (file,) = folder.glob("*.prefixes")
    first = file.stat().st_ino, file.stat().st_mtime_ns
    with load(directory, folder):
        pass
    with load(directory, folder) as llm:
        answer(llm, tokens(1))
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == first
    with load(directory, folder) as llm:
        answer(llm, tokens(2))
    assert file.stat().st_ino != first[0]
    with load(directory, folder) as llm:
        assert [answer(llm, tokens(seed))[1] for seed in (1, 2)] == [WARM, WARM]
        file.unlink()
    assert file.exists(), "one that has gone is written again"


def test_any_damage_is_a_cold_start_with_a_warning(
    directory: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = cold(directory, tokens(1, 40))
    with load(directory, folder) as llm:
        answer(llm, tokens(1, 40))
    (file,) = folder.glob("*.prefixes")
    raw = file.read_bytes()
    rng = random.Random(11)
    damaged = [b"", raw[:-1], raw + b"\0", bytes(len(raw))]
    while len(damaged) < 24:
        other = mutate(raw, rng, is_json=False)
        if other != raw:
            damaged.append(other)
    for content in damaged:
        file.write_bytes(content)
        caplog.clear()
        with load(directory, folder) as llm:
            assert answer(llm, tokens(1, 40)) == (expected, 0)
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert record.getMessage().startswith(f"prefix cache starts empty: {file}")
        assert "\n" not in record.getMessage()
        with load(directory, folder) as llm:
            assert answer(llm, tokens(1, 40)) == (expected, 39), "saved anew"


def test_others_start_cold_and_keep_files_of_their_own(
    directory: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    warnings: list[str],
) -> None:
    other = make_tiny_model("qwen2-tied", tmp_path / "other", 1)
    adapters = [make_tiny_adapter(directory, tmp_path / f"{s}", seed=s) for s in (1, 2)]
    cases: list[tuple[Path, dict[str, Any]]] = [
        (directory, {}),
        (other, {}),
        (directory, {"kv_cache_dtype": "fp32"}),
        (directory, {"kv_cache_dtype": "int8"}),
        (directory, {"kv_cache_dtype": "int4"}),
        (directory, {"kv_cache_dtype": "k8v4"}),
        (directory, {"adapter": adapters[0]}),
        (directory, {"adapter": adapters[1]}),
    ]
    expected = []
    for count, (path, options) in enumerate(cases):
        assert len(list(folder.glob("*.prefixes"))) == count
        with load(path, folder, **options) as llm:
            found, cached = answer(llm, tokens(1))
        assert cached == 0
        assert found == cold(path, tokens(1), **options)
        expected.append(found)
    assert all(expected.count(each) == 1 for each in expected), "the cases do not differ"
    for (path, options), before in zip(cases, expected, strict=True):
        with load(path, folder, **options) as llm:
            assert answer(llm, tokens(1)) == (before, WARM)
    monkeypatch.setattr(numerics, "NUMERICS_VERSION", numerics.NUMERICS_VERSION + 1)
    with load(directory, folder) as llm:
        assert answer(llm, tokens(1)) == (expected[0], 0)


def tenant_answer(llm: LLM, prompt: list[int], salt: str | None) -> tuple[Result, int]:
    (output,) = llm.generate([prompt], GREEDY, cache_salt=salt)
    assert output.metrics is not None
    return result(output), output.metrics.cached_tokens


def test_a_tenant_never_finds_what_another_has_saved(directory: Path, folder: Path) -> None:
    expected = cold(directory, tokens(1))
    with load(directory, folder) as llm:
        assert tenant_answer(llm, tokens(1), "ann") == (expected, 0)
    with load(directory, folder) as llm:
        assert tenant_answer(llm, tokens(1), None) == (expected, 0)
        assert tenant_answer(llm, tokens(1), "bob") == (expected, 0)
        assert tenant_answer(llm, tokens(1), "ann") == (expected, WARM)
    with load(directory, folder) as llm:
        for salt in ("ann", None, "bob"):
            assert tenant_answer(llm, tokens(1), salt) == (expected, WARM)


def test_nothing_of_a_request_that_was_not_finite_is_saved(tmp_path: Path, folder: Path) -> None:
    """X26, I5: the model on disk is as it was, so its next process would find the blocks."""
    directory = make_tiny_model("qwen2", tmp_path / "untied")
    bad = [*tokens(1, 40), 7, *tokens(2, 40)]
    good = [token for token in tokens(3) if token != 7]
    expected = cold(directory, good)
    with load(directory, folder) as llm:
        make_embedding_infinite(llm, 7)
        outputs = llm.generate([bad, good], GREEDY)
        assert outputs[0].error is not None
        assert outputs[0].outputs[0].finish_reason == "error"
        assert result(outputs[1])[0] == expected[0]
    with load(directory, folder) as llm:
        found, cached = answer(llm, bad)
        assert cached == 0
        assert found == cold(directory, bad)
        assert answer(llm, good)[1] > 80


CHILD = """
import json, sys
from farthing import LLM, SamplingParams
params = SamplingParams(temperature=0, max_tokens=16, logprobs=3, ignore_eos=True)
prompt = [(7919 * i) % 150000 for i in range(1000)]
with LLM(sys.argv[1], prefix_cache=sys.argv[2], max_model_len=2048) as llm:
    llm.generate([1, 2, 3], SamplingParams(temperature=0, max_tokens=1))
    (output,) = llm.generate([prompt], params)
    (completion,) = output.outputs
print(json.dumps({
    "first": output.metrics.prefill_seconds,
    "cached": output.metrics.cached_tokens,
    "tokens": completion.token_ids,
    "logprobs": [[entry.logprob.hex() for entry in e.values()] for e in completion.logprobs],
}))
"""


@pytest.mark.slow
def test_the_next_process_begins_to_answer_a_long_prompt_at_once(
    qwen_gguf: Path, folder: Path
) -> None:
    def run() -> dict[str, Any]:
        command = [sys.executable, "-c", CHILD, str(qwen_gguf), str(folder)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        assert result.stderr == ""
        return dict(json.loads(result.stdout))

    first, second = run(), run()
    assert first["cached"] == 0
    assert second["cached"] == 999
    assert second["tokens"] == first["tokens"]
    assert second["logprobs"] == first["logprobs"]
    assert second["first"] * 5 < first["first"]
