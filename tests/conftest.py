"""Real models for the tests marked slow, fetched as the product fetches them."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Tests share few cores; a BLAS with threads of its own makes them slower, not faster.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Real models already fetched for tests are used where they lie.
_TEST_MODELS = os.environ.get(
    "FARTHING_TEST_MODELS", str(Path("~/.cache/farthing-test-models").expanduser())
)
os.environ.setdefault("FARTHING_MODEL_PATH", _TEST_MODELS)


def pytest_configure() -> None:
    """Gives signals back to the programs that tests start: jobs in the background ignore them."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What ``-n auto`` means: a process a core, and no more than memory has room for."""
    return min(4, len(os.sched_getaffinity(0)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files stay whole: what a module's fixtures start is started once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


@pytest.fixture
def others_garbage() -> Iterator[None]:
    """Leaves it alone while a test times itself: going through it may take most of a second."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def qwen_gguf() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct, Q4_K_M: the default model."""
    from farthing.catalog import resolve

    return resolve("qwen2.5-coder-0.5b")


@pytest.fixture(scope="session")
def gemma_gguf() -> Path:
    """Gemma 3 270M, Q4_K_M: another family, with windows of 512 tokens."""
    from farthing.catalog import resolve

    return resolve("gemma-3-270m")


@pytest.fixture(scope="session")
def llama_cpp_sources() -> Path:
    """Folder with ``ggml-vocab-*.gguf``, ``.inp`` and ``.out`` files, and ``templates/*.jinja``."""
    from support.llama_cpp_sources import llama_cpp_models

    return llama_cpp_models(Path(_TEST_MODELS))
