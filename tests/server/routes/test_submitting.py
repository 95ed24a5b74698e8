"""Names under which prompts are submitted."""

from __future__ import annotations

from farthing.server.routes.submitting import MAX_USER, short_user


def test_names_of_users_take_bounded_memory_and_stay_apart() -> None:
    names = [None, "", "alice", "a" * MAX_USER]
    assert [short_user(name) for name in names] == names
    long = ["a" * (MAX_USER + 1), "a" * 4_000_000, "a" * 4_000_000 + "b", "\ud800" * 100]
    short = [short_user(name) for name in long]
    assert all(name is not None and len(name) <= MAX_USER for name in short)
    assert len(set(short)) == len(long)
    assert short == [short_user(name) for name in long]
