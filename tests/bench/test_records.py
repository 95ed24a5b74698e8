"""Lines that are kept: where, and what about the machine is in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from farthing.bench import records
from farthing.bench.records import (
    CpuTime,
    append,
    machine_facts,
    machine_name,
    results_folder,
    software_facts,
    timestamp,
)
from support.full_disk import files_of_at_most


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("AMD EPYC", "amd-epyc"),
        ("Intel(R) Core(TM) i7-8565U CPU @ 1.80GHz", "intel-core-i7-8565u-cpu-1.80ghz"),
        ("../../etc/passwd", "etc-passwd"),
        ("名", "unknown"),
    ],
)
def test_a_machine_name_is_the_name_of_a_folder(model: str, name: str) -> None:
    assert re.fullmatch(rf"{re.escape(name)}-\d+-cores", machine_name(model))


def test_results_go_beside_the_source_or_to_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert results_folder(tmp_path, tmp_path / "tree") == (
        tmp_path / "tree" / "bench" / "results" / machine_name()
    )
    monkeypatch.setattr(records, "checkout", lambda: None)
    assert results_folder(tmp_path) == tmp_path / "bench" / machine_name()


def test_a_checkout_is_known_by_its_sources() -> None:
    root = Path(__file__).parents[2]
    from_source = Path(records.__file__).is_relative_to(root)
    assert records.checkout() == (root if from_source else None)


def test_lines_are_appended_to_the_days_file(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    first = append([{"n": 1}, {"n": "→"}], folder)
    assert append([{"n": 3}], folder) == first
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\.jsonl", first.name)
    lines = first.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"n": 1}, {"n": "→"}, {"n": 3}]


def test_where_there_is_no_room_no_half_line_is_left(tmp_path: Path) -> None:
    path = append([{"n": 1}], tmp_path)
    before = path.read_bytes()
    with files_of_at_most(len(before) + 5), pytest.raises(OSError, match="too large") as raised:
        append([{"n": 2}, {"n": 3}], tmp_path)
    assert raised.value.filename == str(path)
    assert path.read_bytes() == before


def test_times_are_utc() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00Z"


def test_facts_are_plain_data() -> None:
    facts = json.loads(json.dumps(machine_facts()))
    assert facts["isa"] in facts["supported_isas"]
    assert 1 <= facts["cores"] <= facts["allowed_cpus"]
    assert facts["memory_bytes"] > 0
    software = software_facts()
    assert set(software) == {"farthing", "commit", "python"}
    assert software["commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", software["commit"])


def test_time_that_the_host_took_is_a_share(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text("cpu  10 0 10 60 0 0 0 20 5 5\ncpu0 1 1 1\n")
    now = CpuTime.now(tmp_path)
    assert now == CpuTime(100, 20)
    assert now.stolen_since(CpuTime(50, 10)) == 0.2
    assert now.stolen_since(now) is None
    assert CpuTime.now(tmp_path / "elsewhere") == CpuTime(0, 0)


def test_the_governor_is_told_where_the_system_tells_it(tmp_path: Path) -> None:
    assert records._governor(tmp_path) is None
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_governor").write_text("performance\n")
    assert records._governor(tmp_path) == "performance"
