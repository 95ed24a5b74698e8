"""Traces on a tiny model's engine and on a server that the test wrote, in turns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from farthing import LLM, SamplingParams
from farthing.bench.llama_server import LlamaServer, play_on_server, server_system
from farthing.bench.records import Record
from farthing.bench.trace import RequestTimes, TraceRequest, all_at_once, poisson
from farthing.bench.trace_engine import engine_systems, system_names
from farthing.bench.trace_rounds import System, play_rounds, wanted_arrivals
from farthing.errors import FarthingError, InvalidParameterError
from support.fake_llama_cpp import calls, write_llama_server
from support.tiny_models import make_tiny_model

TRACE = [TraceRequest("a few words " * (1 + i % 3), 2 + 5 * (i % 4 == 0), True) for i in range(12)]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(make_tiny_model("qwen2", tmp_path_factory.mktemp("tiny")), kv_cache_tokens=4096)


def check(times: Sequence[RequestTimes]) -> None:
    assert [each.tokens for each in times] == [request.max_tokens for request in TRACE]
    for each in times:
        assert each.arrived < each.first_token <= each.done


@pytest.mark.parametrize("name", ["continuous", "static", "contiguous"])
def test_every_policy_answers_the_whole_trace(llm: LLM, name: str) -> None:
    (system,) = engine_systems(llm, [name], 3, 64, None)
    for arrivals in (all_at_once(12), poisson(12, 200.0, 1)):
        times, extra = system.play(TRACE, arrivals)
        check(times)
        assert [each.arrived for each in times] == arrivals
        assert extra["steps"] > 0
        assert 0 <= extra["kv_waste"] < 1
    assert not llm.engine.has_work
    assert llm.engine.metrics.steps == 0, "its own engine is not touched"


def test_the_models_own_answers_are_the_same_afterwards(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    llm = LLM(make_tiny_model("qwen2", tmp_path_factory.mktemp("own")), kv_cache_tokens=512)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=1)
    prompt = "a prompt of its own that fills a block or two of the cache, and then some more"
    before = llm.generate(prompt, params)[0].outputs
    (system,) = engine_systems(llm, ["continuous"], 8, 64, None)
    system.play(TRACE, all_at_once(12))
    assert llm.generate(prompt, params)[0].outputs == before


def test_a_static_batch_returns_together_and_wastes_steps(llm: LLM) -> None:
    continuous, static = engine_systems(llm, ["continuous", "static"], 4, 64, None)
    times, extra = static.play(TRACE, all_at_once(12))
    assert len({each.done for each in times}) == 3
    assert extra["steps"] > continuous.play(TRACE, all_at_once(12))[1]["steps"]


def test_contiguous_slots_waste_more_than_blocks(llm: LLM) -> None:
    paged, whole = engine_systems(llm, ["continuous", "contiguous"], 4, 512, None)
    waste = [system.play(TRACE, all_at_once(12))[1]["kv_waste"] for system in (paged, whole)]
    lengths = [len(llm.tokenizer.encode(request.prompt)) for request in TRACE]
    assert waste[1] >= 1 - (max(lengths) + 7) / 512
    # Blocks are filled but for the last of each sequence, 15 tokens at most.
    assert waste[0] <= 15 / (min(lengths) + 15)


def test_a_server_is_started_fed_and_ended(tmp_path: Path) -> None:
    folder = write_llama_server(tmp_path)
    model = tmp_path / "m.gguf"
    server = LlamaServer(folder / "llama-server", model, 3, 64, 2, "int8")
    system = server_system(server)
    assert system.facts == {
        "peer_model": str(model),
        "peer": "llama.cpp version: 1.2.3 (build 7)",
    }
    times, _ = system.play(TRACE, poisson(12, 500.0, 2))
    check(times)
    options = calls(folder)[-1]
    for name, value in {"-np": "3", "-c": "192", "-t": "2", "-ctk": "q8_0"}.items():
        assert options[options.index(name) + 1] == value
    with server.running() as port:
        pass
    with pytest.raises(FarthingError, match="llama-server: ConnectionRefusedError"):
        play_on_server(port, TRACE, all_at_once(12))


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("print('no such model'); sys.exit(1)", "does not become ready: no such model"),
        ("short = 1", "1 tokens where 2 were asked for|6 tokens where 7"),
    ],
)
def test_what_a_server_does_wrong_is_named(fault: str, problem: str, tmp_path: Path) -> None:
    folder = write_llama_server(tmp_path, fault)
    server = LlamaServer(folder / "llama-server", tmp_path / "m", 2, 64, 1)
    with pytest.raises(FarthingError, match=problem), server.running() as port:
        play_on_server(port, TRACE, all_at_once(12))


def made_up(name: str, seconds: float, log: list[tuple[str, list[float]]]) -> System:
    """Answers in ``seconds`` each, one after the other."""

    def play(
        trace: Sequence[TraceRequest], arrivals: Sequence[float]
    ) -> tuple[list[RequestTimes], Record]:
        log.append((name, list(arrivals)))
        times, free = [], 0.0
        for request, arrival in zip(trace, arrivals, strict=True):
            free = max(free, arrival) + seconds
            times.append(RequestTimes(arrival, free, free, request.max_tokens))
        return times, {}

    return System(name, play)


def test_systems_take_turns_and_get_the_same_arrivals() -> None:
    log: list[tuple[str, list[float]]] = []
    systems = [made_up("fast", 0.5, log), made_up("slow", 2.0, log)]
    played = play_rounds(
        systems,
        TRACE,
        ["all", "poisson"],
        rounds=3,
        rate=None,
        load=0.8,
        capacity_of="slow",
        progress=lambda _: None,
    )
    assert [name for name, _ in log] == ["fast", "slow"] * 6
    assert log[2][1] == log[3][1] == poisson(12, 0.8 * 0.5, 0)
    assert log[6][1] == poisson(12, 0.8 * 0.5, 1)
    fast, slow = played[:2]
    assert fast.ratio("tokens_s", slow).median == pytest.approx(4)
    assert fast.ratio("latency_mean", slow).most == pytest.approx(0.25)
    record = fast.record({"model": "m"}, slow)
    assert (record["compared_with"], record["rounds"]) == ("slow", 3)
    assert "requests_s" not in record
    assert played[2].record({}, slow)["requests_s"]["median"] == pytest.approx(0.4)


def test_a_given_rate_needs_no_capacity() -> None:
    log: list[tuple[str, list[float]]] = []
    play_rounds(
        [made_up("one", 0.5, log)],
        TRACE,
        ["poisson"],
        rounds=1,
        rate=3.0,
        load=0.8,
        capacity_of="one",
        progress=lambda _: None,
    )
    assert log == [("one", poisson(12, 3.0, 0))]


def test_unknown_names_are_refused() -> None:
    assert system_names("static, continuous,static") == ["static", "continuous"]
    assert wanted_arrivals("poisson,all") == ["all", "poisson"]
    with pytest.raises(InvalidParameterError, match=r"--systems 'orca': 'orca' must be one of"):
        system_names("orca")
    with pytest.raises(InvalidParameterError, match=r"--arrivals 'all,': '' must be one of"):
        wanted_arrivals("all,")
