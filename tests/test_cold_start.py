"""What memory a new process takes, at its peak, to serve the default model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHILD = """
import json, sys
from pathlib import Path
from farthing import LLM, SamplingParams
llm = LLM(sys.argv[1], kv_cache_tokens=int(sys.argv[2]))
prompt = [(7919 * i) % 150000 for i in range(int(sys.argv[2]) - 8)]
llm.generate(prompt, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
weights = sum(w.nbytes for w in llm.runner.executor.weights.values())
# Not ru_maxrss: a child inherits its parent's through fork and exec.
status = Path("/proc/self/status").read_text()
print(json.dumps({
    "peak": int(status.split("VmHWM:")[1].split()[0]) * 1024,
    "weights": weights,
    "kv": llm.runner.kv.nbytes,
}))
"""


@pytest.mark.parametrize("tokens", [512, 2048])
def test_peak_memory_is_weights_and_kv_and_at_most_300_mib(qwen_gguf: Path, tokens: int) -> None:
    child = [sys.executable, "-c", CHILD, str(qwen_gguf), str(tokens)]
    result = subprocess.run(child, check=True, capture_output=True, text=True)
    sizes = json.loads(result.stdout)
    assert sizes["weights"] > 400 << 20, "not the default model"
    assert sizes["kv"] == tokens * 12_288
    assert sizes["peak"] <= sizes["weights"] + sizes["kv"] + (300 << 20)
