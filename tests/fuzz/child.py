"""The process that opens damaged files: ``python -m fuzz.child FORMAT FOLDER FIRST COUNT``.

Prints how many were refused and how many ran; ends with a traceback at the first that did neither,
took more than its time or memory, or was refused in words that do not name the file.
"""

from __future__ import annotations

import faulthandler
import gc
import random
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

from farthing.engine.model_loader import LoadOptions, load_model
from farthing.errors import (
    ContextLengthError,
    InsufficientMemoryError,
    InvalidParameterError,
    ModelFormatError,
    ModelNotFoundError,
    UnsupportedArchitectureError,
    UnsupportedOperationError,
)
from farthing.program.step import SequenceRows, step_batch
from fuzz import corpus
from support import bounds
from support.mutation import mutate

REFUSALS = (ModelFormatError, ModelNotFoundError, UnsupportedArchitectureError,
            UnsupportedOperationError, ContextLengthError, InsufficientMemoryError)  # fmt: skip
OPTIONS = LoadOptions(num_threads=1, kv_cache_tokens=64, max_num_batched_tokens=16)


def main(format_name: str, folder: Path, first: int, count: int) -> None:
    model, file = corpus.file_of(folder, format_name)
    good = file.read_bytes()
    parts = corpus.parts(format_name, good)
    play(model)  # what is imported and made once is not part of any file's cost
    gc.freeze()
    refused = 0
    for seed in range(first, first + count):
        rng = random.Random(f"{format_name} {seed}")
        start, end = rng.choice(parts)
        bad = mutate(good[start:end], rng, is_json=format_name != "gguf")
        file.write_bytes(good[:start] + bad + good[end:])
        faulthandler.dump_traceback_later(20, exit=True)
        if seed % 64 == 0:
            gc.collect()
        bounds.forget_peak()
        before, began = bounds.resident("VmRSS"), time.process_time()
        try:
            play(model)
        except REFUSALS as error:
            refused += 1
            check_words(str(error), model)
        seconds, peak = time.process_time() - began, bounds.resident("VmHWM") - before
        faulthandler.cancel_dump_traceback_later()
        assert seconds < bounds.SECONDS, f"seed {seed} took {seconds:.1f} s"
        assert peak < bounds.MEMORY, f"seed {seed} took {peak >> 20} MiB"
    file.write_bytes(good)  # for the next run
    print(f"refused={refused} ran={count - refused}")


def play(model: Path) -> None:
    """Loads and checks the model, encodes a text, runs two tokens through its weights."""
    loaded = load_model(model, OPTIONS)
    with suppress(InvalidParameterError):  # a vocabulary can lack the characters of a text
        loaded.tokenizer.decode(loaded.tokenizer.encode("hi there, 12 + 30"))
    tokens = [0, min(1, loaded.config.vocab_size - 1)]
    rows = SequenceRows(tokens=tokens, position=0, block_table=[0], logits=1)
    runner = loaded.runner
    logits = runner.executor.run(step_batch([rows]), runner.kv).logits
    assert logits.shape == (1, loaded.config.vocab_size)


def check_words(message: str, model: Path) -> None:
    assert str(model) in message or "loading needs" in message or "max_model_len" in message
    assert len(message) < 2000
    assert message.isprintable(), repr(message)


if __name__ == "__main__":
    warnings.simplefilter("error")
    faulthandler.enable()
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
