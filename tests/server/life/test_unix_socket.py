"""A server at a Unix socket: it replaces what is dead, and only that."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

from support.command_line import CommandLine
from support.reachable import COMPLETIONS
from support.server_process import serving


def why_not(model: Path, place: Path) -> str:
    outcome = CommandLine({})("serve", str(model), "--uds", str(place))
    assert outcome.returncode == 2
    assert outcome.stderr.count("\n") == 1
    return outcome.stderr


def test_a_socket_nobody_listens_on_is_replaced_and_one_in_use_is_not(
    life_model: Path, tmp_path: Path
) -> None:
    place = tmp_path / "farthing.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(place))
    with serving(life_model, uds=place) as server:
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert server.listening() == []
        body = {"prompt": "a", "max_tokens": 2, "ignore_eos": True}
        assert server.answer(COMPLETIONS, body)["usage"]["completion_tokens"] == 2
        assert f"unix:{place}" in server.ready_line()["message"]
        assert "another program listens there" in why_not(life_model, place)
        assert server.answer(COMPLETIONS, body)
    assert not place.exists()


def test_what_is_no_socket_stays(life_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    for place in (file, link):
        assert "there is something that is no socket" in why_not(life_model, place)
    assert file.read_text() == "mine"
    assert link.is_symlink()
    assert "No such file" in why_not(life_model, tmp_path / "no" / "folder")
    assert "--uds" in why_not(life_model, tmp_path / ("x" * 200))
