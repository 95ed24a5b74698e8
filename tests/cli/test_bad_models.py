"""Models that cannot be loaded: one line says why, status 2, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from farthing.tokenization.byte_level import BYTE_TO_CHARACTER
from support.command_line import COMMAND, CommandLine, Outcome

# Cuts by the part of the file they fall in.
CUTS = ("empty", "magic", "header", "metadata", "directory", "first tensor", "last byte")


def write_model(
    path: Path, architecture: str = "llama", *, context: int = 64, head_dim: int = 16
) -> Path:
    """A random GGUF model of one layer."""
    width, inner, tokens = 32, 48, [*BYTE_TO_CHARACTER, "hi", "<|end|>"]
    heads = 2 * head_dim
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 257 + [3])
    writer.add_token_merges(["h i"])
    writer.add_eos_token_id(257)
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (len(tokens), width),
        "output_norm": (width,),
        "blk.0.attn_norm": (width,),
        "blk.0.attn_q": (heads, width),
        "blk.0.attn_k": (heads, width),
        "blk.0.attn_v": (heads, width),
        "blk.0.attn_output": (width, heads),
        "blk.0.ffn_norm": (width,),
        "blk.0.ffn_gate": (inner, width),
        "blk.0.ffn_up": (inner, width),
        "blk.0.ffn_down": (width, inner),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("whole") / "model.gguf")


def assert_told(result: Outcome, home: Path, *parts: str) -> None:
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("farthing: error: ")
    for part in parts:
        assert part in line
    assert not home.exists()


def assert_traced(result: Outcome, home: Path, error: str) -> None:
    """With ``--debug``: the trace, then the same line."""
    first, *_, last = result.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert f"\nfarthing.errors.{error}: " in result.stderr
    assert_told(Outcome(result.returncode, result.stdout, last), home)


def length_of(cut: str, path: Path) -> int:
    reader = gguf.GGUFReader(path)
    data, size = int(reader.data_offset), path.stat().st_size
    directory = int(reader.tensors[0].field.offset)
    return {
        "empty": 0,
        "magic": 3,
        "header": 20,
        "metadata": directory // 2,
        "directory": (directory + data) // 2,
        "first tensor": data + 10,
        "last byte": size - 1,
    }[cut]


def test_the_whole_file_is_served(farthing: CommandLine, whole: Path, home: Path) -> None:
    result = farthing.process("run", str(whole), "hi", "-n", "2")
    assert result.returncode == 0
    assert not home.exists()


@pytest.mark.parametrize("cut", CUTS)
def test_a_file_that_breaks_off_is_told(
    farthing: CommandLine, whole: Path, home: Path, tmp_path: Path, cut: str
) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole.read_bytes()[: length_of(cut, whole)])
    assert_told(farthing.process("run", str(path), "hi"), home, str(path))
    for verb in (("show", str(path)), ("chat", "hi", "-m", str(path))):
        assert_told(farthing(*verb), home, str(path))
    traced = farthing.process("run", str(path), "hi", "--debug")
    assert_traced(traced, home, "ModelFormatError")


def test_another_architecture_is_told_with_those_supported(
    farthing: CommandLine, home: Path, tmp_path: Path
) -> None:
    path = str(write_model(tmp_path / "other.gguf", "mamba"))
    for verb in (("run", path, "hi"), ("show", path), ("chat", "hi", "-m", path)):
        assert_told(farthing.process(*verb), home, path, "'mamba'", "llama", "qwen2")
    traced = farthing.process("--debug", "run", path, "hi")
    assert_traced(traced, home, "UnsupportedArchitectureError")


def test_a_context_that_does_not_fit_memory_is_told(
    farthing: CommandLine, home: Path, tmp_path: Path
) -> None:
    tokens = 1 << 28  # of 16 KiB: 4 TiB
    path = write_model(tmp_path / "long.gguf", context=tokens, head_dim=1024)
    arguments = ("run", str(path), "hi", "--kv-cache-dtype", "fp32", "--max-model-len", str(tokens))
    needed = f"of KV cache for {tokens} tokens"
    assert_told(farthing.process(*arguments), home, needed, "MiB are available")
    assert_traced(farthing.process(*arguments, "--debug"), home, "InsufficientMemoryError")


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""
LOADED = """
import farthing, farthing.cli.main
status = open("/proc/self/status").read()
print(int(status.split("VmSize:")[1].split()[0]) * 1024)
"""


def test_a_limit_of_the_address_space_is_kept(
    environment: dict[str, str], tiny_model: str, home: Path
) -> None:
    def child(*command: str) -> Outcome:
        result = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )
        return Outcome(result.returncode, result.stdout, result.stderr)

    limit = int(child("-c", LOADED).stdout) + (200 << 20)  # less than a process is counted with
    run = ("-c", LIMITED, str(limit), *COMMAND, "run", tiny_model, "hi")
    assert_told(child(*run), home, "MiB are available")
    assert_traced(child(*run, "--debug"), home, "InsufficientMemoryError")


@pytest.mark.parametrize("head_dim", [8, 24])
def test_heads_no_kernel_can_hold_are_refused_with_the_number(
    farthing: CommandLine, home: Path, tmp_path: Path, head_dim: int
) -> None:
    path = write_model(tmp_path / "model.gguf", head_dim=head_dim)
    result = farthing("run", str(path), "hi", "-n", "1")
    assert_told(result, home, str(path), f"heads of {head_dim} dimensions", "multiple of 16")
