"""What the compiled code calls and which instructions it has: bits and old processors depend on it.

Nothing calls the mathematical library, whose results differ between systems. Each instruction set's
objects have only its instructions, and define nothing that the linker could take for another's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import farthing

ROOT = Path(__file__).parents[2]
ISAS = ("scalar", "avx2", "avxvnni", "avx512")

# All that may round otherwise on another system: transcendental functions of any precision, their
# forms of fast-math and of the vector library, and the call to fma of those who lack the
# instruction. sqrt, floor and the like have one right answer.
_NAMES = (
    "a?(sin|cos|tan)h?|atan2|sincos|exp|exp2|exp10|expm1|pow|log|log2|log10|log1p|cbrt|hypot|"
    "erfc?|[lt]?gamma|j[01n]|y[01n]|fma|remquo"
)
INEXACT = re.compile(rf"(__)?({_NAMES})(f|l|f16|f32|f64|f128)?(_finite)?|_ZGV.*")

pytestmark = [
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in ("nm", "objdump", "g++")),
        reason="needs g++ and binutils",
    ),
    pytest.mark.timeout(1800),  # the first slow one compiles all objects
]


def output(*command: str | Path) -> str:
    return subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True
    ).stdout


def undefined(binary: Path, *options: str) -> set[str]:
    """Names a binary leaves to others, without versions."""
    lines = output("nm", "--undefined-only", *options, binary).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line}


def inexact(names: set[str]) -> set[str]:
    return {name for name in names if INEXACT.fullmatch(name)}


def instructions(binary: Path) -> Iterator[str]:
    """Each instruction of a binary: mnemonic and operands."""
    for line in output("objdump", "-d", "--no-show-raw-insn", binary).splitlines():
        found = re.match(r"\s+[0-9a-f]+:\s+(.+)", line)
        if found:
            yield found[1]


def compiled(source: str, folder: Path, *flags: str) -> Path:
    (folder / "source.cc").write_text(source)
    target = folder / "source.o"
    output("g++", "-c", *flags, folder / "source.cc", "-o", target)
    return target


# --- The mathematical library -------------------------------------------------------------------


def native_module() -> Path:
    (module,) = Path(farthing.__file__).parent.glob("_native*.so")
    return module


def test_the_module_calls_no_mathematical_function() -> None:
    names = undefined(native_module(), "--dynamic")
    assert "memcpy" in names
    assert not inexact(names)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("std::exp(x)", "expf"),
        ("std::pow(double(x), 2.5)", "pow"),
        ("std::log1p(x)", "log1pf"),
        ("std::tanh((long double)x)", "tanhl"),
        ("std::fma(x, x, x)", "fmaf"),
        ("std::erf(x)", "erff"),
    ],
)
def test_a_mathematical_function_would_be_found(call: str, name: str, tmp_path: Path) -> None:
    made = compiled(f"#include <cmath>\nfloat f(float x) {{ return {call}; }}", tmp_path, "-O2")
    assert inexact(undefined(made)) == {name}


@pytest.mark.parametrize("name", ["memcpy", "sqrtf", "expand", "logger", "fmaxf", "powder", "log_"])
def test_other_names_are_not_taken_for_one(name: str) -> None:
    assert not inexact({name})


# --- Objects ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder: ``FARTHING_BUILD``, brought up to date, or else a new one."""
    for tool in ("cmake", "ninja"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    given = os.environ.get("FARTHING_BUILD")
    folder = Path(given) if given else tmp_path_factory.mktemp("build")
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    output("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *options)
    targets = [f"farthing_{part}" for part in (*ISAS, "core")]
    output("cmake", "--build", folder, "-j", str(os.cpu_count()), "--target", *targets)
    return folder


def objects(build: Path, part: str) -> list[Path]:
    found = sorted((build / "CMakeFiles" / f"farthing_{part}.dir").rglob("*.o"))
    assert found
    return found


def commands(build: Path) -> dict[str, list[str]]:
    """The compiler's arguments for each of our files, by its path below csrc."""
    listed = json.loads((build / "compile_commands.json").read_text())
    paths = {entry["file"]: entry["command"].split() for entry in listed}
    own = {p: c for p, c in paths.items() if Path(p).is_relative_to(ROOT / "csrc")}
    return {str(Path(p).relative_to(ROOT / "csrc")): c for p, c in own.items()}


@pytest.mark.slow
def test_no_object_calls_a_mathematical_function(build: Path) -> None:
    names = {o: inexact(undefined(o)) for part in (*ISAS, "core") for o in objects(build, part)}
    assert not {path: found for path, found in names.items() if found}


WIDER_THAN_AVX2 = re.compile(r"%zmm\d+|%[xy]mm(1[6-9]|2\d|3[01])\b|%k[0-7]\b")
VEX = re.compile(r"^v(?!err|erw|mcall|mmcall)")
VNNI = re.compile(r"vpdpbusd\b")
PACKED_FMA = re.compile(r"^vfn?m(add|sub)\w*p[sd]\b")


@pytest.mark.slow
def test_objects_have_their_own_sets_instructions_only(build: Path) -> None:
    """And the inverse: what is looked for is found where it belongs."""

    def having(pattern: re.Pattern[str], part: str) -> set[str]:
        return {
            path.parent.name + "/" + path.name
            for path in objects(build, part)
            if any(pattern.search(i) for i in instructions(path))
        }

    assert not having(WIDER_THAN_AVX2, "scalar")
    assert not having(WIDER_THAN_AVX2, "avx2")
    assert not having(WIDER_THAN_AVX2, "avxvnni")
    assert having(VNNI, "avxvnni")
    assert not having(VNNI, "avx2")
    assert having(WIDER_THAN_AVX2, "avx512")
    assert not having(VEX, "core")
    assert having(VEX, "scalar")
    assert not having(PACKED_FMA, "scalar")
    assert having(PACKED_FMA, "avx2")


@pytest.mark.slow
@pytest.mark.parametrize("isa", ISAS)
def test_objects_share_no_code_with_other_sets(build: Path, isa: str) -> None:
    """Of several weak definitions of a function the linker takes any, the widest set's perhaps."""
    weak = set()
    for path in objects(build, isa):
        for line in output("nm", "--defined-only", path).splitlines():
            kind, name = line.split()[-2:]
            if kind in "Ww":  # functions; V and u are data, the same for all
                weak.add(name)
    own = f"8farthing{len(isa)}{isa}"  # the namespace, as it stands in names of C++
    assert any(own in name for name in weak)
    assert {name for name in weak if own not in name} == set()


LOOSE = {
    "-ffast-math",
    "-Ofast",
    *(f"-f{name}" for name in ("unsafe-math-optimizations", "associative-math", "reciprocal-math")),
    *(f"-f{name}" for name in ("finite-math-only", "no-signed-zeros", "cx-limited-range")),
}
# What would loosen the rules for one function or file, whatever the flags.
LOOSENING = re.compile(
    r"\boptimize\s*\(|#\s*pragma\s+(STDC|clang\s+fp|GCC\s+optimize|float_control)"
    r"|_Pragma\s*\(\s*\"(STDC|clang fp|GCC optimize)"
)


def test_no_source_loosens_the_rules_for_itself() -> None:
    sources = [p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".cc", ".h")]
    assert len(sources) > 100
    assert not [str(p) for p in sources if LOOSENING.search(p.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "line",
    [
        '__attribute__((optimize("fast-math"))) float f(float x);',
        '[[gnu::optimize("O3", "fast-math")]] float f(float x);',
        '#pragma GCC optimize("Ofast")',
        "#pragma STDC FP_CONTRACT ON",
        "#pragma clang fp contract(fast)",
        '_Pragma("STDC FP_CONTRACT ON")',
    ],
)
def test_what_loosens_the_rules_would_be_found(line: str) -> None:
    assert LOOSENING.search(line)


def test_loading_the_module_leaves_denormals_alone() -> None:
    """A library linked with fast-math has all of a process round them to zero from then on."""
    child = (
        "import struct\n"
        "from farthing import _native\n"
        "tiny = struct.unpack('<d', struct.pack('<Q', 1))[0]\n"
        "print(tiny * 3 == 0.0)\n"
    )
    result = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
    assert (result.returncode, result.stdout.strip()) == (0, "False"), result.stderr


PROBE = """
float product_and_sum(float a, float b, float c) { return a * b + c; }
float sum(const float* x, int n) { float t = 0; for (int i = 0; i < n; ++i) t += x[i]; return t; }
"""


@pytest.mark.slow
def test_flags_neither_contract_nor_reorder(build: Path, tmp_path: Path) -> None:
    all_commands = commands(build)
    assert len(all_commands) > 40
    for path, command in all_commands.items():
        contracting = [flag for flag in command if flag.startswith("-ffp-contract=")]
        assert contracting[-1:] == ["-ffp-contract=off"], path
        assert not LOOSE & set(command), path

    fused = re.compile(r"^vfn?m(add|sub)")
    packed_add = re.compile(r"^v?addps\b")

    def has(pattern: re.Pattern[str], *flags: str) -> bool:
        return any(pattern.search(i) for i in instructions(compiled(PROBE, tmp_path, *flags)))

    for isa in ISAS:
        command = all_commands[f"kernels/linear/{isa}.cc"]
        flags = [f for f in command if f.startswith(("-O", "-m", "-f", "-std"))]
        assert not has(fused, *flags), isa
        assert not has(packed_add, *flags), isa
        assert has(fused, *flags, "-ffp-contract=fast"), isa
    assert has(packed_add, *flags, "-ffast-math")
