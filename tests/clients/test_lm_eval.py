"""lm-eval's ``local-completions``: a multiple-choice and a rolling-likelihood task, end to end."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clients.environments import SECONDS, client_variables, environment
from clients.server import NAME
from farthing import LLM, SamplingParams

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]  # an environment may be made first

QUESTIONS = [
    {"question": f"What is {a} + {b}?", "choices": [" 1", f" {a + b}", " none"], "answer": 1}
    for a, b in ((1, 1), (2, 7), (12, 30), (3, 4))
]
TEXTS = [
    "The miller weighs the flour, the baker weighs the bread.",
    "Über den Wipfeln ist Ruh; 水は方円の器に随う 🌾 " * 3,
    "def reverse(node):\n    return node\n" * 80,  # longer than one window of the client
]
COMMON = "dataset_path: json\noutput_type: {kind}\ntest_split: test\nnum_fewshot: 0\n"


@pytest.fixture(scope="module")
def folder(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run left, in ``out``: results and samples."""
    folder = tmp_path_factory.mktemp("lm-eval")
    tasks = {
        "sums": (
            "multiple_choice",
            QUESTIONS,
            'doc_to_text: "Question: {{question}}\\nAnswer:"\n'
            'doc_to_choice: "{{choices}}"\ntarget_delimiter: ""\ndoc_to_target: answer\n'
            "metric_list: [{metric: acc}]\n",
        ),
        "texts": (
            "loglikelihood_rolling",
            [{"text": text} for text in TEXTS],
            'doc_to_text: ""\ndoc_to_target: "{{text}}"\n'
            "metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}]\n",
        ),
    }
    for name, (kind, items, rest) in tasks.items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join([json.dumps(item) + "\n" for item in items]), encoding="utf-8")
        files = f"dataset_kwargs:\n  data_files:\n    test: {data}\n"
        (folder / f"{name}.yaml").write_text(
            f"task: {name}\n{COMMON.format(kind=kind)}{files}{rest}"
        )
    arguments = f"model={NAME},base_url={url}/v1/completions,max_length=1024,num_concurrent=1"
    command = [environment("common") / "bin" / "python", "-m", "lm_eval"]
    command += ["--model", "local-completions", "--model_args", arguments, "--batch_size", "3"]
    command += ["--tasks", "sums,texts", "--include_path", folder, "--log_samples"]
    variables = client_variables() | {"HF_HOME": str(folder / "cache")}
    result = subprocess.run(
        [*command, "--output_path", folder / "out"],
        capture_output=True,
        text=True,
        env=variables,
        timeout=SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert "Using remote tokenizer" in result.stderr  # none of its own
    return folder


def results(folder: Path) -> dict[str, Any]:
    (file,) = folder.glob("out/**/results_*.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["results"]
    return found


def samples(folder: Path, task: str) -> list[dict[str, Any]]:
    (file,) = folder.glob(f"out/**/samples_{task}_*.jsonl")
    lines = file.read_text(encoding="utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda sample: sample["doc_id"])


def likelihood(llm: LLM, before: list[int], tokens: list[int]) -> tuple[float, bool]:
    """Log likelihood of ``tokens`` behind others, added up as the client does it; if greedy."""
    params = SamplingParams(max_tokens=1, prompt_logprobs=1)
    (output,) = llm.generate([*before, *tokens], params)
    assert output.prompt_logprobs is not None
    entries = output.prompt_logprobs[len(before) :]
    own = [next(iter(entry.values())).logprob for entry in entries if entry is not None]
    assert len(own) == len(tokens)
    best = [max(p.logprob for p in entry.values()) for entry in entries if entry is not None]
    return sum(own), own == best


def test_choices_get_the_bits_of_the_model(folder: Path, llm: LLM) -> None:
    right = 0
    for sample, question in zip(samples(folder, "sums"), QUESTIONS, strict=True):
        context = f"Question: {question['question']}\nAnswer:"
        before = llm.tokenizer.encode(context, add_special_tokens=False)
        expected = []
        for choice in question["choices"]:  # type: ignore[attr-defined]
            whole = llm.tokenizer.encode(context + choice, add_special_tokens=False)
            expected.append(likelihood(llm, before, whole[len(before) :]))
        got = [(float(value), greedy == "True") for ((value, greedy),) in sample["resps"]]
        assert got == expected
        values = [value for value, _ in expected]
        right += values.index(max(values)) == question["answer"]
    assert results(folder)["sums"]["acc,none"] == right / len(QUESTIONS)


def test_rolling_likelihoods_get_the_bits_of_the_model(folder: Path, llm: LLM) -> None:
    total, words, octets = 0.0, 0, 0
    begin = llm.tokenizer.eos_token_ids[0]  # the vocabulary has nothing that begins a text
    for sample, text in zip(samples(folder, "texts"), TEXTS, strict=True):
        tokens = llm.tokenizer.encode(text, add_special_tokens=False)
        # The client's windows: max_length - 2 tokens and one before them; the last is filled up
        # with tokens that were counted already.
        most = 1022
        expected = 0.0
        for start in range(0, len(tokens), most):
            piece = tokens[start : start + most]
            full = [begin, *tokens[: start + len(piece)]]
            before = full[max(len(full) - most - 1, 0) : len(full) - len(piece)]
            expected += likelihood(llm, before, piece)[0]
        ((got,),) = sample["resps"]
        assert float(got) == expected
        total += expected
        words += len(re.split(r"\s+", text))  # so the client counts them
        octets += len(text.encode())
    found = results(folder)["texts"]
    assert found["word_perplexity,none"] == pytest.approx(math.exp(-total / words), rel=1e-12)
    assert found["byte_perplexity,none"] == pytest.approx(math.exp(-total / octets), rel=1e-12)
