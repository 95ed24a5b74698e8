"""Closing an ``LLM``: requests end, the prefix cache is saved, memory is free."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from farthing import LLM, RequestOutput, SamplingParams
from farthing.engine.draws import Draw
from farthing.engine.schedule import Schedule
from farthing.errors import FarthingError, InvalidParameterError
from support.full_disk import files_of_at_most
from support.tiny_models import make_tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
PROMPT = list(range(40))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("qwen2-tied", tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "kept"


def load(directory: Path, folder: Path | None = None, **options: Any) -> LLM:
    return LLM(directory, prefix_cache=folder, num_threads=1, **options)


def saved(folder: Path) -> list[Path]:
    return list(folder.glob("*.prefixes"))


def cached_tokens(llm: LLM) -> int:
    (output,) = llm.generate([PROMPT], GREEDY)
    assert output.metrics is not None
    return output.metrics.cached_tokens


def test_a_closed_llm_says_so(directory: Path) -> None:
    with load(directory) as llm:
        expected = llm.generate([PROMPT], GREEDY)[0].outputs[0].text
        assert expected
    llm.close()
    llm.close()
    for call in (
        lambda: llm.generate([PROMPT], GREEDY),
        lambda: llm.chat([{"role": "user", "content": "Hi"}]),
        lambda: llm.stream("Hi"),
        lambda: llm.chat_stream([{"role": "user", "content": "Hi"}]),
    ):
        with pytest.raises(FarthingError, match="this LLM is closed; load the model again"):
            call()
    ((key, refused),) = llm.run([("key", PROMPT, GREEDY)])
    assert key == "key"
    assert "this LLM is closed" in str(refused)
    assert llm.tokenizer.encode("Hi")
    assert llm.engine.metrics.steps > 0


def test_weights_and_cache_are_freed(directory: Path) -> None:
    llm = load(directory)
    parts = [weakref.ref(llm.runner.executor), weakref.ref(llm.runner.kv)]
    llm.generate([PROMPT], GREEDY)
    assert all(part() is not None for part in parts)
    llm.close()
    gc.collect()
    assert [part() for part in parts] == [None, None]


def test_a_stream_that_is_running_is_told(directory: Path) -> None:
    llm = load(directory)
    chunks = llm.stream(PROMPT, LONG)
    assert next(chunks) is not None
    other = llm.stream(PROMPT, LONG)  # not begun
    llm.close()
    with pytest.raises(FarthingError, match="the LLM was closed before the answer ended"):
        list(chunks)
    with pytest.raises(FarthingError, match="this LLM is closed"):
        list(other)
    assert not llm.engine.has_work
    llm.engine.check_integrity()


@pytest.mark.parametrize("num_threads", [1, 4])
def test_calls_of_other_threads_get_what_there_is(num_threads: int, directory: Path) -> None:
    llm = load(directory)
    expected = llm.generate([PROMPT], LONG)[0].outputs[0].token_ids
    outputs: list[RequestOutput] = []
    refused: list[str] = []
    going = threading.Event()
    run = llm.runner.run
    passes = itertools.count()

    def tell_and_run(schedule: Schedule) -> dict[str, Draw]:
        if next(passes) == 5:
            going.set()
        elif going.is_set():
            time.sleep(0.01)  # or an answer may end before a busy machine closes
        return run(schedule)

    llm.runner.run = tell_and_run  # type: ignore[method-assign]

    def generate() -> None:
        try:
            outputs.extend(llm.generate([PROMPT], LONG))
        except FarthingError as error:  # it came too late
            refused.append(str(error))

    threads = [threading.Thread(target=generate) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    assert going.wait(60)
    llm.close()
    for thread in threads:
        thread.join(60)
    assert len(outputs) + len(refused) == num_threads
    assert all("this LLM is closed" in error for error in refused)
    for output in outputs:
        (completion,) = output.outputs
        assert output.error == "the LLM was closed before the answer ended"
        assert completion.finish_reason == "abort"
        assert len(completion.token_ids) < len(expected)
        assert completion.token_ids == expected[: len(completion.token_ids)]
    assert any(output.outputs[0].token_ids for output in outputs)
    assert not llm.engine.has_work
    llm.engine.check_integrity()


def test_it_is_not_closed_within_its_own_pass(directory: Path) -> None:
    llm = load(directory)
    run = llm.runner.run

    def close_and_run(schedule: Schedule) -> dict[str, Draw]:
        llm.close()
        return run(schedule)

    llm.runner.run = close_and_run  # type: ignore[method-assign]
    with pytest.raises(FarthingError, match="in the middle of its own pass"):
        llm.generate([PROMPT], GREEDY)
    llm.runner.run = run  # type: ignore[method-assign]
    assert llm.generate([PROMPT], GREEDY)[0].error is None


def test_leaving_the_block_saves_whatever_it_was_left_for(directory: Path, folder: Path) -> None:
    def leave() -> None:
        with load(directory, folder) as llm:
            next(llm.stream(PROMPT, LONG))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert len(saved(folder)) == 1
    assert cached_tokens(load(directory, folder)) == 32


def test_without_closing_nothing_is_saved(directory: Path, folder: Path) -> None:
    llm = load(directory, folder)
    llm.generate([PROMPT], GREEDY)
    del llm
    gc.collect()
    assert not folder.exists()


def test_an_llm_that_did_nothing_leaves_no_file(directory: Path, folder: Path) -> None:
    with load(directory, folder):
        pass
    assert saved(folder) == []


def test_a_full_disk_costs_no_answer(
    directory: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with load(directory, folder) as llm:
        llm.generate([PROMPT], GREEDY)
    (file,) = saved(folder)
    before = file.read_bytes()
    with load(directory, folder) as llm, files_of_at_most(1000):
        assert llm.generate([[*range(50, 99)]], GREEDY)[0].error is None
        llm.close()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f"prefix cache is not saved: {file}: cannot be saved: the file may not become larger"
    )
    assert file.read_bytes() == before


@pytest.mark.parametrize("what", ["no permission", "a folder as the file"])
def test_a_folder_that_cannot_be_used_costs_no_answer(
    what: str, directory: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with load(directory, folder) as llm:
        expected = llm.generate([PROMPT], GREEDY)[0].outputs[0].text
    (file,) = saved(folder)
    file.unlink()
    if what == "no permission":
        (folder / ".lock").unlink()
        (folder / ".lock").mkdir()  # for root, too
    else:
        file.mkdir()
    with load(directory, folder) as llm:
        assert llm.generate([PROMPT], GREEDY)[0].outputs[0].text == expected
    lines = [record.getMessage() for record in caplog.records]
    assert lines
    assert all(line.startswith("prefix cache ") and str(folder) in line for line in lines)
    assert lines[-1].startswith("prefix cache is not saved: ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"use_cache": False}, "there is no prefix cache without use_cache"),
        ({"enable_prefix_caching": False}, "there is no prefix cache without use_cache"),
        ({"kv": "contiguous"}, "there is no prefix cache without use_cache"),
        ({"prefix_cache": ""}, "prefix_cache='' must name a folder"),
        ({"prefix_cache": "a\0b"}, "must name a folder"),
        ({"prefix_cache_bytes": 0}, "prefix_cache_bytes=0 must be a whole number"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    options: dict[str, Any], words: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        LLM(tmp_path / "no model", **{"prefix_cache": folder} | options)
