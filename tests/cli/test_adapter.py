"""``--adapter``: what it does to ``run``, ``chat`` and ``show``, and how a wrong one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from farthing import LLM, SamplingParams
from farthing.cli.conversation.loop import Conversation
from farthing.cli.conversation.session import Session
from farthing.cli.loading import LoadOptions, load
from support.command_line import CommandLine
from support.tiny_adapters import make_tiny_adapter

QUESTION = "What does a farthing buy?"
GREEDY = SamplingParams(temperature=0, max_tokens=12)
WEIGHTS = "adapter_model.safetensors"


@pytest.fixture(scope="module")
def adapter(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_adapter(Path(tiny_model), tmp_path_factory.mktemp("adapter") / "lora")


@pytest.fixture(scope="module")
def adapted(tiny_model: str, adapter: Path) -> str:
    """The adapted model's answer to the question."""
    llm = LLM(tiny_model, adapter=adapter, num_threads=1)
    answer = llm.chat([{"role": "user", "content": QUESTION}], GREEDY)[0].outputs[0].text
    plain = LLM(tiny_model, num_threads=1)
    assert answer != plain.chat([{"role": "user", "content": QUESTION}], GREEDY)[0].outputs[0].text
    return answer


def test_run_and_chat_answer_as_the_adapted_model(
    farthing: CommandLine, tiny_model: str, adapter: Path, adapted: str
) -> None:
    result = farthing("run", tiny_model, QUESTION, "-n", "12", "--adapter", str(adapter), "--json")
    answer = json.loads(result.stdout)
    assert (answer["text"], answer["adapter"]) == (adapted, str(adapter))
    result = farthing("chat", QUESTION, "-m", tiny_model, "-n", "12", "--adapter", str(adapter))
    assert result.stdout.rstrip("\n") == adapted.rstrip("\n")


def test_show_describes_the_adapter(farthing: CommandLine, tiny_model: str, adapter: Path) -> None:
    result = farthing("show", tiny_model, "--adapter", str(adapter), "--json", "--program")
    facts = json.loads(result.stdout)
    weights = load_file(adapter / WEIGHTS)
    assert facts["adapter"] == {
        "path": str(adapter),
        "base_model": tiny_model,
        "ranks": [8],
        "targets": ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"],
        "modules": 21,
        "parameters": sum(values.size for values in weights.values()),
        "tensor_bytes": sum(values.nbytes for values in weights.values()),
        "served_bytes": facts["adapter"]["served_bytes"],
    }
    # B of q, k and v has a column for the ranks of all three, and of gate and up for both.
    assert facts["adapter"]["served_bytes"] > facts["adapter"]["tensor_bytes"]
    assert any("lora_A" in line for line in facts["program"])
    shown = farthing("show", tiny_model, "--adapter", str(adapter)).stdout
    for text in (str(adapter), "q_proj", "21 matrices", "Rank"):
        assert text in shown
    assert "adapter" not in json.loads(farthing("show", tiny_model, "--json").stdout)


@pytest.mark.parametrize("verb", ["run", "chat", "show"])
def test_a_wrong_adapter_is_refused_before_anything_is_fetched(
    farthing: CommandLine, tmp_path: Path, verb: str
) -> None:
    model = "qwen2.5-coder-0.5b"  # not here, and nothing may be fetched
    arguments = {
        "run": ("run", model, "hi"),
        "chat": ("chat", "hi", "-m", model),
        "show": ("show", model),
    }[verb]
    result = farthing(*arguments, "--adapter", str(tmp_path / "nowhere"))
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert f"{tmp_path}/nowhere: no such adapter directory" in result.stderr


def test_an_adapter_of_another_model_is_one_line(
    farthing: CommandLine, tiny_model: str, adapter: Path, tmp_path: Path
) -> None:
    weights = load_file(adapter / WEIGHTS)
    name = next(name for name in weights if name.endswith("lora_A.weight"))
    weights[name] = weights[name][:, :-1].copy()
    save_file(weights, tmp_path / WEIGHTS)
    (tmp_path / "adapter_config.json").write_text((adapter / "adapter_config.json").read_text())
    for verb in (("run", tiny_model, "hi"), ("show", tiny_model)):
        result = farthing(*verb, "--adapter", str(tmp_path))
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        for text in (str(tmp_path / WEIGHTS), name, "columns"):
            assert text in result.stderr


def test_an_adapter_in_place_of_a_model_is_told_where_it_belongs(
    farthing: CommandLine, adapter: Path
) -> None:
    result = farthing("run", str(adapter), "hi")
    assert result.returncode == 2
    assert "--adapter" in result.stderr


def test_an_adapter_stays_with_its_model_when_a_chat_goes_on_with_another(
    tiny_model: str, adapter: Path
) -> None:
    options = LoadOptions(threads=1, adapter=str(adapter))
    conversation = Conversation(load(tiny_model, options), Session(tiny_model), options)
    assert f"{tiny_model} with {adapter} · " in conversation.describe_model()
    assert "model.norm.weight" in conversation.llm.runner.executor.weights
    conversation.change_model(f"{tiny_model}/")
    assert not [n for n in conversation.llm.runner.executor.weights if "lora" in n]
    assert "with" not in conversation.describe_model()
