"""Who was told when to come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farthing.server.admission.promises import GRACE, MOST_PROMISES, MOST_WAIT, Promises


def test_each_has_a_place_behind_all_who_were_promised_one() -> None:
    promises = Promises()
    for number in range(1, 6):
        assert promises.place(again=False) == number
        promises.add(10.0 + number, 0.0)


def test_whoever_comes_keeps_the_promise_that_is_due() -> None:
    promises = Promises()
    promises.add(20.0, 0.0)
    promises.add(10.0, 0.0)
    assert not promises.arrive(9.9)
    assert promises.arrive(10.0)
    assert not promises.arrive(10.0)
    assert len(promises) == 1


def test_promises_lapse_after_their_grace() -> None:
    promises = Promises()
    promises.add(10.0, 0.0, 7)
    assert promises.arrive(10.0 + GRACE)
    promises.add(10.0, 0.0, 7)
    assert not promises.arrive(10.1 + GRACE)
    assert len(promises) == 0
    assert promises.room(5, again=False) == 5


def test_who_came_in_vain_goes_ahead_of_those_who_have_not_come() -> None:
    promises = Promises()
    for time in range(10):
        promises.add(50.0 + time, 0.0)
    assert promises.place(again=True) == 2
    promises.add(20.0, 0.0, again=True)
    assert promises.place(again=True) == 4
    assert promises.place(again=False) == 12
    assert promises.arrive(20.0)
    assert promises.place(again=True) == 2


def test_a_newcomer_may_have_what_leaves_a_place_to_all_who_will_come() -> None:
    promises = Promises()
    promises.add(10.0, 0.0)
    promises.add(20.0, 0.0)

    def freed(time: float) -> int:
        return int(time >= 15)

    # At 10 one comes, at 20 the second, and meanwhile one more place is free.
    assert promises.allow(2, freed, 0.0)
    assert not promises.allow(1, freed, 0.0)
    promises.arrive(10.0)
    assert promises.allow(1, freed, 10.0)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.floats(0, 30), st.integers(0, 9), st.booleans()),
            st.tuples(st.just("arrive"), st.floats(0, 5), st.just(0), st.just(False)),
        ),
        max_size=60,
    )
)
def test_counts_are_those_of_a_plain_list(steps: list[tuple[str, float, int, bool]]) -> None:
    promises, plain, now = Promises(), [], 100.0
    for kind, seconds, tokens, again in steps:
        if kind == "add":
            promises.add(now + seconds, now, tokens, again=again)
            plain.append((now + seconds, tokens, again))
        else:
            now += seconds
            plain = sorted(p for p in plain if p[0] >= now - GRACE)
            due = bool(plain) and plain[0][0] <= now
            assert promises.arrive(now) == due
            put_off = [p[:2] for p in plain if p[2]]
            if due:
                # Of equal ones it does not matter which: one that was put off is gone first.
                first = min(plain, key=lambda p: (p[:2], p[:2] not in put_off, not p[2]))
                plain.remove(first)
        assert len(promises) == len(plain)
        assert promises.room(3, again=False) == 3 + sum(p[1] for p in plain)
        of_again = [p for p in plain if p[2]]
        assert promises.place(again=True) == 2 * (len(of_again) + 1)
        assert promises.room(3, again=True) == 2 * (3 + sum(p[1] for p in of_again))


def test_what_is_remembered_is_bounded() -> None:
    promises = Promises()
    promises.add(MOST_WAIT + 0.1, 0.0)
    assert len(promises) == 0
    for i in range(2 * MOST_PROMISES):
        promises.add(i % 100, 0.0, 1)
    assert len(promises) == promises.room(0, again=False) == MOST_PROMISES
    assert not promises.arrive(1000.0)
    assert len(promises) == promises.room(0, again=False) == 0
