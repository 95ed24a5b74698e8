"""Tokens/s of onnxruntime-genai, for bench/peers/in_turns.py.

    python bench/peers/onnxruntime_int4.py MODEL_DIR [--threads 2] [--batch 1,8,16,32]

Run it in an environment of its own with onnxruntime-genai. MODEL_DIR is what the package's model
builder made (``-p int4 -e cpu``). Prints one JSON object.
"""

from __future__ import annotations

import json
import time

import numpy as np
import onnxruntime_genai as og
from sizes import DEPTH, NEW_TOKENS, PREFILL, arguments, prompt


def main() -> None:
    options = arguments(__doc__)
    config = og.Config(str(options.model))
    session = {"intra_op_num_threads": options.threads, "inter_op_num_threads": 1}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
    model = og.Model(config)

    def rates(batch: int, depth: int, new_tokens: int) -> tuple[float, float]:
        params = og.GeneratorParams(model)
        length = depth + new_tokens + 1
        params.set_search_options(
            do_sample=False, max_length=length, min_length=length, batch_size=batch
        )
        generator = og.Generator(model, params)
        tokens = np.array([prompt(depth, first) for first in range(batch)], np.int32)
        start = time.perf_counter()
        generator.append_tokens(tokens)
        generator.generate_next_token()
        read = time.perf_counter()
        for _ in range(new_tokens):
            generator.generate_next_token()
        end = time.perf_counter()
        return batch * depth / (read - start), batch * new_tokens / (end - read)

    rates(1, DEPTH, 4)
    result = {"prefill": rates(1, PREFILL, 1)[0]}
    for batch in options.batch:
        result[f"decode {batch}"] = rates(batch, DEPTH, NEW_TOKENS)[1]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
