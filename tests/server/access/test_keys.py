"""API keys: sources, files, and whose a presented one is."""

from __future__ import annotations

import hmac
import logging
from pathlib import Path

import pytest

from farthing.errors import FarthingError, InvalidParameterError
from farthing.server.access.keys import MAX_FILE, MAX_KEY, ApiKeys
from farthing.server.principal import Principal


def from_file(tmp_path: Path, text: str | bytes) -> ApiKeys:
    file = tmp_path / "keys"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(0o600)
    return ApiKeys.from_sources(file=file)


def test_keys_come_from_values_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("from-file name=alice\n")
    file.chmod(0o600)
    keys = ApiKeys.from_sources(["one", "two,three", "four, five"], file)
    names = {
        key: keys.principal_of(key)
        for key in (b"one", b"two", b"three", b"four", b"five", b"from-file")
    }
    assert {k: p.name for k, p in names.items() if p is not None} == {
        b"one": "key-1",
        b"two": "key-2",
        b"three": "key-3",
        b"four": "key-4",
        b"five": "key-5",
        b"from-file": "alice",
    }
    assert len(keys) == 6


def test_without_a_source_there_are_none_and_nobody_has_one() -> None:
    keys = ApiKeys.from_sources()
    assert len(keys) == 0
    assert keys.principal_of(b"") is None
    assert keys.principal_of(b"anything") is None


def test_a_line_grants_what_it_says(tmp_path: Path) -> None:
    keys = from_file(
        tmp_path,
        "# whose keys these are\n"
        "\n"
        "  sk-a!b/c=  name=alice requests_per_minute=60 max_concurrent_requests=2 priority=-5 #\r\n"
        "sk-plain # no name\n"
        "sk-#inside",
    )
    assert keys.principal_of(b"sk-a!b/c=") == Principal("alice", -5, 60, 2)
    assert keys.principal_of(b"sk-plain") == Principal("key-2")
    assert keys.principal_of(b"sk-#inside") == Principal("key-3")
    assert len(keys) == 3


def test_two_keys_may_stand_for_one_name_but_not_with_other_rights(tmp_path: Path) -> None:
    keys = from_file(tmp_path, "old name=alice priority=1\nnew name=alice priority=1\n")
    assert keys.principal_of(b"old") == keys.principal_of(b"new") == Principal("alice", 1)
    with pytest.raises(InvalidParameterError, match="line 2: another key has the name alice"):
        from_file(tmp_path, "old name=alice priority=1\nnew name=alice\n")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"k\xc3\xa9y", "not ASCII"),
        (b"a,b", "no comma"),
        (b"a\x7fb", "printable ASCII"),
        (b"a\x00b", "printable ASCII"),
        (b"x" * (MAX_KEY + 1), "printable ASCII"),
        (b"first", "given before"),
        (b"k name=", "a name is"),
        (b"k name=a/b", "a name is"),
        (b"k name=a name=b", "each field once"),
        (b"k priority=1 priority=1", "each field once"),
        (b"k priority", "each field once"),
        (b"k priority=1.5", "whole number"),
        (b"k requests_per_minute=0", "whole number"),
        (b"k max_concurrent_requests=-1", "whole number"),
        (b"k requests_per_minute=" + b"9" * 5000, "whole number"),
        (b"k limit=3", "the fields after a key are"),
    ],
)
def test_a_bad_line_is_named_by_its_number_and_never_shown(
    tmp_path: Path, line: bytes, problem: str
) -> None:
    with pytest.raises(InvalidParameterError, match=problem) as refused:
        from_file(tmp_path, b"first\n# comment\n" + line + b"\nlast\n")
    assert "keys, line 3: " in str(refused.value)
    assert "\n" not in str(refused.value)
    for key in (b"first", b"a,b", line[:20]):
        assert key.decode("latin-1") not in str(refused.value).removeprefix(str(tmp_path))


@pytest.mark.parametrize("values", [[""], ["a,"], ["a", "  "], ["a b"], ["schlüssel"], ["a", "a"]])
def test_a_value_that_is_no_key_is_refused(values: list[str]) -> None:
    with pytest.raises(InvalidParameterError, match=r"^--api-key: "):
        ApiKeys.from_sources(values)


def test_a_file_without_keys_or_none_at_all_does_not_open_the_server(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="there is no key in it"):
        from_file(tmp_path, "# none yet\n\n")
    with pytest.raises(FarthingError, match=r"cannot read the keys in .*No such file"):
        ApiKeys.from_sources(file=tmp_path / "missing")
    with pytest.raises(FarthingError, match=r"cannot read the keys in .*Is a directory"):
        ApiKeys.from_sources(file=tmp_path)
    with pytest.raises(InvalidParameterError, match="at most"):
        from_file(tmp_path, b"#" * (MAX_FILE + 1))


def test_a_file_that_others_can_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("secret-key\n")
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING, "farthing.server.access"):
        ApiKeys.from_sources(file=file)
    assert [record.getMessage() for record in caplog.records] == [
        f"{file}: others on this machine can read the keys; chmod 600 it"
    ]
    caplog.clear()
    file.chmod(0o640)
    ApiKeys.from_sources(file=file)
    assert not caplog.records


def test_nothing_prints_a_key() -> None:
    keys = ApiKeys.from_sources(["secret-key"])
    principal = keys.principal_of(b"secret-key")
    for shown in (repr(keys), str(keys), str(vars(keys)), repr(principal)):
        assert "secret-key" not in shown


@pytest.mark.parametrize("presented", [b"first", b"third", b"none of them", b"", b"x" * 1_000_000])
def test_every_key_is_compared_whichever_is_presented(
    monkeypatch: pytest.MonkeyPatch, presented: bytes
) -> None:
    keys = ApiKeys.from_sources(["first", "second", "third"])
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def counting(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    keys.principal_of(presented)
    assert len(compared) == 3
    assert {len(part) for pair in compared for part in pair} == {32}


@pytest.mark.parametrize(
    "presented", [b"firs", b"first ", b"FIRST", b"\xff\xfe", b"firstsecond", b"first,second"]
)
def test_what_is_nearly_a_key_is_none(presented: bytes) -> None:
    assert ApiKeys.from_sources(["first", "second"]).principal_of(presented) is None
