"""Where each named pre-tokenizer splits text."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from farthing.errors import ModelFormatError
from farthing.tokenization import Tokenizer
from farthing.tokenization.pretokenization import PRE_TOKENIZATIONS, UNNAMED, install

pytestmark = pytest.mark.usefixtures("others_garbage")

SAME = {
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
    "mistral-bpe": "tekken",
    "phi-2": "gpt-2",
    "refact": "smollm",
    "starcoder": "smollm",
}

TEXT = "I'LL say HelloWorldAGAIN's, x=12345; naïve e\u0301té!?\r\n\n  \t你好3世界 ...//\n a  b "
WORDS = {
    "qwen2": "I|'LL| say| HelloWorldAGAIN|'s|,| x|=|1|2|3|4|5|;|"
    " naïve| été|!?\r\n\n|  |\t你好|3|世界| ...//\n| a| | b| ",
    "qwen35": "I|'LL| say| HelloWorldAGAIN|'s|,| x|=|1|2|3|4|5|;|"
    " naïve| été|!?\r\n\n|  |\t你好|3|世界| ...//\n| a| | b| ",
    "llama-bpe": "I|'LL| say| HelloWorldAGAIN|'s|,| x|=|123|45|;|"
    " naïve| e|\u0301té|!?\r\n\n|  |\t你好|3|世界| ...//\n| a| | b| ",
    "tekken": "I|'LL| say| Hello|World|AGAIN|'s|,| x|=|1|2|3|4|5|;|"
    " naïve| e\u0301té|!?\r\n\n|  |\t你好|3|世界| ...//\n| a| | b| ",
    "gpt-4o": "I'LL| say| Hello|World|AGAIN's|,| x|=|123|45|;|"
    " naïve| e\u0301té|!?\r\n\n|  |\t你好|3|世界| ...//\n| a| | b| ",
    "gpt-2": "I|'|LL| say| HelloWorldAGAIN|'s|,| x|=|12345|;|"
    " naïve| e|\u0301|té|!?|\r\n\n  |\t|你好|3|世界| ...//|\n| a| | b| ",
    "smollm": "I|'|LL| say| HelloWorldAGAIN|'s|,| x|=|1|2|3|4|5|;|"
    " naïve| e|\u0301|té|!?|\r\n\n  |\t|你好|3|世界| ...//|\n| a| | b| ",
    "deepseek-v3": "I|'LL| say| HelloWorldAGAIN|'s|,| x|=|123|45|;|"
    " naïve| e\u0301té|!?\r\n\n|  \t|你好|3|世界| ...//\n| a| | b| ",
    "deepseek-coder": "I|'|LL| say| HelloWorldAGAIN|'|s|,| x|=|1|2|3|4|5|;|"
    " naïve| e|\u0301|té|!?|\r|\n|\n|  |\t|你好|3|世界| ...//|\n| a| | b| ",
    "deepseek-llm": "I|'|LL| say| HelloWorldAGAIN|'|s|,| x|=|1|2|3|4|5|;|"
    " na|ï|ve| e|\u0301|t|é|!?|\r|\n|\n|  \t|你好|3|世界| ...//|\n| a| | b| ",
}


def pieces(name: str, text: str) -> list[str]:
    library = Library(models.BPE())
    install(PRE_TOKENIZATIONS[name], library)
    if library.normalizer is not None:
        text = library.normalizer.normalize_str(text)
    assert library.pre_tokenizer is not None
    decode = decoders.ByteLevel().decode
    return [decode([piece]) for piece, _ in library.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", sorted(WORDS))
def test_words_end_where_the_published_tokenizer_ends_them(name: str) -> None:
    assert "|".join(pieces(name, TEXT)) == WORDS[name]


def test_every_row_is_tried_here_or_the_same_as_one_that_is() -> None:
    others = {"command-r": "smollm", "dbrx": "llama-bpe", "olmo": "gpt-2", "smaug-bpe": "llama-bpe"}
    assert set(PRE_TOKENIZATIONS) == {*WORDS, *SAME, *others}
    for name, other in SAME.items():
        assert PRE_TOKENIZATIONS[name] == PRE_TOKENIZATIONS[other]
    for name, other in others.items():
        assert PRE_TOKENIZATIONS[name].steps == PRE_TOKENIZATIONS[other].steps


def test_white_space_at_the_end_is_split_as_the_published_pattern_does(texts: Any) -> None:
    # deepseek-llm's \s+$ is written another way. Lines are pieces by then, and end where $ is.
    lines = pre_tokenizers.Split(Regex(r"[\r\n]"), behavior="isolated")
    ours, published = (
        pre_tokenizers.Sequence([lines, pre_tokenizers.Split(Regex(pattern), behavior="isolated")])
        for pattern in (r"(?<!\s)\s++$", r"\s+$")
    )
    assert r"(?<!\s)\s++$" in PRE_TOKENIZATIONS["deepseek-llm"].steps
    for text in [*texts(2_000, seed=51, extra=(" ", "\n ", "\t")), "  ", " a ", "a \n \n"]:
        assert ours.pre_tokenize_str(text) == published.pre_tokenize_str(text)


@pytest.mark.parametrize("name", [*sorted(PRE_TOKENIZATIONS), ""])
@pytest.mark.parametrize(
    "unit", ["a", "A", " ", "\n", "1", "=", "é", "你", "🙂", "\u0301", "'", " a"]
)
def test_long_runs_take_well_under_a_second(name: str, unit: str) -> None:
    library = Library(models.BPE())
    install(PRE_TOKENIZATIONS.get(name, UNNAMED), library)
    assert library.pre_tokenizer is not None
    text = unit * (50_000 // len(unit)) + "x"
    started = time.thread_time()
    split = library.pre_tokenizer.pre_tokenize_str(text)
    assert time.thread_time() - started < 0.9
    assert split[-1][1][1] == len(text)


def test_a_file_that_names_none_loads_with_a_warning(
    qwen2: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("", "default"):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            tokenizer = Tokenizer.from_gguf(replace(qwen2.gguf, pre=name))
        assert "tokenizer.ggml.pre: the file does not name" in caplog.text
        text = "a $12345 b's"
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_an_unknown_name_is_refused_with_those_that_are_known(qwen2: Any) -> None:
    with pytest.raises(ModelFormatError, match=r"pre: .*'bloom'.*deepseek-v3, gpt-2.*tekken"):
        Tokenizer.from_gguf(replace(qwen2.gguf, pre="bloom"))


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZATIONS))
def test_texts_come_back(qwen2: Any, texts: Any, name: str) -> None:
    tokenizer = Tokenizer.from_gguf(replace(qwen2.gguf, pre=name))
    keep = normalizers.NFC().normalize_str if PRE_TOKENIZATIONS[name].nfc else str
    for text in texts(200, seed=52, extra=tokenizer.control_tokens):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == keep(text)
        assert tokenizer.control_ids.isdisjoint(ids)
