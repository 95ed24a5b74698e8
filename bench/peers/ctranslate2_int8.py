"""Tokens/s of CTranslate2, for bench/peers/in_turns.py.

    python bench/peers/ctranslate2_int8.py MODEL_DIR [--threads 2] [--batch 1,8,16,32]

Run it in an environment of its own with ctranslate2. MODEL_DIR is what
``ct2-transformers-converter --quantization int8`` made. Prints one JSON object.
"""

from __future__ import annotations

import json
import time

import ctranslate2
from sizes import arguments, prompt, rates


def main() -> None:
    options = arguments(__doc__)
    vocabulary = json.loads((options.model / "vocabulary.json").read_text())
    generator = ctranslate2.Generator(
        str(options.model), device="cpu", compute_type="int8", intra_threads=options.threads
    )

    def seconds(batch: int, depth: int, new_tokens: int) -> float:
        prompts = [[vocabulary[i] for i in prompt(depth, first)] for first in range(batch)]
        start = time.perf_counter()
        generator.generate_batch(
            prompts,
            max_length=new_tokens,
            min_length=new_tokens,
            beam_size=1,
            sampling_topk=1,
            include_prompt_in_result=False,
            max_batch_size=0,
        )
        return time.perf_counter() - start

    print(json.dumps(rates(seconds, options.batch)))


if __name__ == "__main__":
    main()
