"""Prompts of exact lengths, counted here or by a server; requests from files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from farthing.bench.serving.asked import Asked, request_body
from farthing.bench.serving.datasets import (
    custom_requests,
    oversampled,
    sharegpt_requests,
    trace_requests,
)
from farthing.bench.serving.http_client import HttpClient, ServerAddress
from farthing.bench.serving.random_prompts import (
    PrefixLengths,
    RandomLengths,
    random_prompts,
    repeated_prefixes,
)
from farthing.bench.serving.vocabulary import LocalVocabulary, ServerVocabulary, Vocabulary
from farthing.errors import FarthingError, InvalidParameterError
from farthing.tokenization import JsonTokenizerFile, Tokenizer
from support.scripted_api import ScriptedApi
from support.tiny_models import make_tiny_model
from support.tiny_tokenizer import tiny_tokenizer

T = TypeVar("T")


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def tokenizer_file(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A vocabulary; llama's puts a token before a text."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer(request.param).save_pretrained(folder)
    return folder / "tokenizer.json"


@pytest.fixture
def local(tokenizer_file: Path) -> LocalVocabulary:
    return LocalVocabulary(tokenizer_file, "tiny")


def tokens(vocabulary: Vocabulary, asked: Asked) -> int:
    return len(asyncio.run(vocabulary.encode(asked.prompt, special=True)))


def with_server(
    tokenizer_file: Path | None,
    use: Callable[[Vocabulary], Awaitable[T]],
    *,
    llama_cpp: bool = False,
) -> T:
    tokenizer = None
    if tokenizer_file is not None:
        tokenizer = Tokenizer.from_source(JsonTokenizerFile(tokenizer_file))

    async def work(url: str) -> T:
        client = HttpClient(ServerAddress.from_url(url), {})
        try:
            return await use(ServerVocabulary(client, "tiny", 20))
        finally:
            await client.close()

    with ScriptedApi(tokenizer=tokenizer, llama_cpp=llama_cpp) as server:
        return asyncio.run(work(server.url))


def test_prompts_have_the_length_that_was_asked_for(local: LocalVocabulary) -> None:
    asked = asyncio.run(random_prompts(local, RandomLengths(37, 9), 40, seed=1))
    assert [each.input_tokens for each in asked] == [37] * 40
    assert [tokens(local, each) for each in asked] == [37] * 40
    assert {each.output_tokens for each in asked} == {9}
    assert len({each.prompt for each in asked}) == 40


def test_lengths_are_drawn_from_all_of_their_range(local: LocalVocabulary) -> None:
    asked = asyncio.run(random_prompts(local, RandomLengths(9, 4, 0.5), 200, seed=1))
    special = tokens(local, Asked("", 1))
    own = 9 - special
    expected = {special + n for n in range(own // 2, -(-own * 3 // 2) + 1)}
    assert {each.input_tokens for each in asked} == expected
    assert {each.output_tokens for each in asked} == {2, 3, 4, 5, 6}
    assert all(tokens(local, each) == each.input_tokens for each in asked)


def test_a_seed_gives_the_same_prompts(local: LocalVocabulary) -> None:
    lengths = RandomLengths(20, 5, 0.2)
    one, same, other = (asyncio.run(random_prompts(local, lengths, 8, s)) for s in (4, 4, 5))
    assert one == same
    assert {each.prompt for each in one}.isdisjoint({each.prompt for each in other})


def test_a_prefix_is_shared_and_counts_on_top(local: LocalVocabulary) -> None:
    asked = asyncio.run(random_prompts(local, RandomLengths(10, 3, prefix_len=24), 12, seed=2))
    assert {each.input_tokens for each in asked} == {34}
    prompts = [each.prompt for each in asked]
    shared = next(n for n, letters in enumerate(zip(*prompts, strict=False)) if len({*letters}) > 1)
    assert (
        len(asyncio.run(local.encode(prompts[0][:shared]))) >= 23
    )  # the last may join what follows


def test_prefixes_repeat(local: LocalVocabulary) -> None:
    lengths = PrefixLengths(prefix_len=16, suffix_len=8, num_prefixes=3, output_len=5)
    asked = asyncio.run(repeated_prefixes(local, lengths, 14, seed=2))
    assert len(asked) == 12  # as many for each
    beginnings = sorted(each.prompt[:12] for each in asked)
    assert [beginnings.count(one) for one in sorted({*beginnings})] == [4, 4, 4]
    with pytest.raises(InvalidParameterError, match="--num-prompts 2"):
        asyncio.run(repeated_prefixes(local, lengths, 2, seed=2))


def test_a_prompt_must_have_a_token(tokenizer_file: Path, local: LocalVocabulary) -> None:
    # The only one is what is put before a text, or where nothing is, may be rounded off.
    lengths = RandomLengths(1, 1, 0.0 if tokens(local, Asked("", 1)) else 0.9)
    with pytest.raises(InvalidParameterError, match="--random-input-len 1"):
        asyncio.run(random_prompts(local, lengths, 2, seed=2))
    with pytest.raises(InvalidParameterError, match="--random-range-ratio"):
        RandomLengths(range_ratio=1.0)


@pytest.mark.parametrize("llama_cpp", [False, True])
def test_a_server_counts_as_its_vocabulary_does(
    tokenizer_file: Path, local: LocalVocabulary, llama_cpp: bool
) -> None:
    async def use(vocabulary: Vocabulary) -> tuple[list[int], str, list[Asked]]:
        ids = await vocabulary.encode("Über 12 🌾", special=True)
        text = await vocabulary.decode(await vocabulary.encode("Über 12 🌾"))
        return ids, text, await random_prompts(vocabulary, RandomLengths(23, 4), 10, 1)

    ids, text, asked = with_server(tokenizer_file, use, llama_cpp=llama_cpp)
    assert ids == asyncio.run(local.encode("Über 12 🌾", special=True))
    assert text == "Über 12 🌾"
    assert [tokens(local, each) for each in asked] == [each.input_tokens for each in asked]
    assert [each.input_tokens for each in asked] == [23] * 10


def test_a_model_of_this_machine_counts(tmp_path: Path) -> None:
    vocabulary = LocalVocabulary(make_tiny_model("qwen2-tied", tmp_path / "model"), "tiny")
    asked = asyncio.run(random_prompts(vocabulary, RandomLengths(50, 4), 10, 1))
    assert [tokens(vocabulary, each) for each in asked] == [50] * 10


def test_a_server_that_counts_nothing_is_told() -> None:
    with pytest.raises(FarthingError, match=r"/tokenize: HTTP 404: Not Found; .*--tokenizer"):
        with_server(None, lambda vocabulary: vocabulary.encode("a"))


def test_traces_are_read_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    items = [
        {"prompt": "<|im_start|>user\nOne", "max_tokens": 3, "arrival": 1.5},
        {"prompt": "Two", "max_tokens": 4, "ignore_eos": False},
    ]
    path.write_text("\n".join(map(json.dumps, items)))
    assert trace_requests(path) == [
        Asked("<|im_start|>user\nOne", 3, ignore_eos=True, arrival=1.5),
        Asked("Two", 4, ignore_eos=False),
    ]
    path.write_text(json.dumps({**items[0], "arrival": -1}))
    with pytest.raises(InvalidParameterError, match=f"--dataset-path {path}: request 0"):
        trace_requests(path)


def test_prompts_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\n\n{"prompt": "c", "output_tokens": 7, "id": 3}\n')
    asked = custom_requests(path, 20)
    assert asked == [Asked("a\u2028b", 20), Asked("c", 7)]
    assert oversampled(asked, 5) == [asked[0], asked[1]] * 2 + [asked[0]]
    for text, problem in [
        ("", "has no prompts"),
        ("[1]", "line 1 must have a prompt"),
        ('{"prompt": ""}', "line 1 must"),
        ('\n{"prompt": "a", "output_tokens": true}', "line 2 must"),
        ("{", "line 1: Expecting"),
    ]:
        path.write_text(text)
        with pytest.raises(InvalidParameterError, match=problem):
            custom_requests(path, 20)


def test_conversations_of_sharegpt(tmp_path: Path, local: LocalVocabulary) -> None:
    def talk(*values: str) -> dict[str, object]:
        return {"conversations": [{"from": "human", "value": value} for value in values]}

    path = tmp_path / "sharegpt.json"
    question, reply = "Who weighs the flour?", "The miller weighs it, then the baker does."
    items = [talk(question, reply, "And?"), talk("only one"), talk(question, "a"), {"id": 1}]
    items.append(talk("flour " * 2000, reply))
    path.write_text(json.dumps(items))

    def read(count: int, output_len: int | None) -> list[Asked]:
        return asyncio.run(sharegpt_requests(path, local, count, output_len, seed=1))

    wanted = tokens(local, Asked(question, 1))
    assert read(9, None) == [Asked(question, tokens(local, Asked(reply, 1)), wanted)]
    assert read(9, 2) == [Asked(question, 2, wanted)] * 2
    assert len(read(1, 2)) == 1
    path.write_text("[]")
    with pytest.raises(InvalidParameterError, match="has no conversation"):
        read(1, None)
    path.write_text("{}")
    with pytest.raises(InvalidParameterError, match="must be a JSON list"):
        read(1, None)


def test_bodies_are_those_of_vllms_tool() -> None:
    def body(asked: Asked, backend: str, **more: object) -> dict[str, object]:
        given = {"model": "m", "ignore_eos": False, "logprobs": None, "extra": {}} | more
        made = request_body(asked, backend=backend, **given)  # type: ignore[arg-type]
        value: dict[str, object] = json.loads(made)
        return value

    stream = {"stream": True, "stream_options": {"include_usage": True}}
    completion = {"model": "m", "prompt": "é", "max_tokens": 3, "repetition_penalty": 1.0, **stream}
    assert body(Asked("é", 3), "openai") == completion
    more = {"logprobs": 2, "extra": {"temperature": 0, "max_tokens": 9}}
    expected = completion | {"logprobs": 2, "temperature": 0, "max_tokens": 9}
    assert body(Asked("é", 3), "vllm", **more) == expected
    messages = [{"role": "user", "content": "é"}]
    chat = {"model": "m", "messages": messages, "max_completion_tokens": 3, **stream}
    assert body(Asked("é", 3), "openai-chat") == chat
    assert body(Asked("é", 3, ignore_eos=True), "openai-chat") == chat | {"ignore_eos": True}
    assert body(Asked("é", 3), "openai", ignore_eos=True)["ignore_eos"] is True
    assert "ignore_eos" not in body(Asked("é", 3, ignore_eos=False), "openai", ignore_eos=True)
    assert body(Asked("\ud800", 3), "openai")["prompt"] == "\ud800"
