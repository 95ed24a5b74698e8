"""Tokens/s of this package as it serves, for bench/peers/in_turns.py.

    python bench/peers/farthing_serving.py MODEL [--threads 2] [--batch 1,8,16,32]

MODEL is a file or a packed directory. Prints one JSON object.
"""

from __future__ import annotations

import json
import time

from sizes import arguments, prompt, rates

from farthing import LLM, SamplingParams


def main() -> None:
    options = arguments(__doc__)
    llm = LLM(options.model, num_threads=options.threads, max_num_seqs=max(options.batch))

    def seconds(batch: int, depth: int, new_tokens: int) -> float:
        prompts = [prompt(depth, first) for first in range(batch)]
        params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        start = time.perf_counter()
        llm.generate(prompts, params)
        return time.perf_counter() - start

    print(json.dumps(rates(seconds, options.batch)))


if __name__ == "__main__":
    main()
