from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from farthing.download.fetch import fetch_file
from farthing.download.hub import RepositoryMissingError, list_repository
from farthing.download.settings import DownloadSettings
from farthing.download.source import HubFile, ModelFile, SourceUnavailable
from farthing.download.store import Store
from farthing.errors import DownloadError

Settings = Callable[[], DownloadSettings]
REPO = "owner/tiny-GGUF"
FILE = "tiny-q4_k_m.gguf"


@pytest.fixture
def data(make_content: Callable[..., bytes]) -> bytes:
    return make_content(400_000)


@pytest.fixture
def model(hub: Any, data: bytes, make_model: Callable[..., ModelFile]) -> ModelFile:
    hub.add(REPO, {FILE: data, "README.md": b"# tiny\n"})
    return make_model(data, (HubFile(REPO, FILE),))


def test_a_listing_has_sizes_checksums_commit_and_licence(
    hub: Any, settings: Settings, model: ModelFile, data: bytes
) -> None:
    listing = list_repository(REPO, "main", settings())
    assert listing.commit == "0123456789abcdef0123456789abcdef01234567"
    assert listing.license == "apache-2.0"
    weights, readme = listing.find(FILE), listing.find("README.md")
    assert weights is not None
    assert readme is not None
    assert (weights.bytes, weights.checksum) == (len(data), model.checksum)
    # `printf '# tiny\n' | git hash-object --stdin`
    assert readme.checksum == "git-sha1:8e2e871357bef652084a73f7173adc5eb8859a33"
    assert listing.find("none") is None


def test_a_file_comes_whole_with_its_progress(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes, list_tree: Any
) -> None:
    progress = recorder()
    path = fetch_file(model, settings(), progress)
    assert path.read_bytes() == data
    assert progress.starts == [("tiny-1b", len(data), 0)]
    assert progress.steps[-1] == (len(data), FILE)
    assert progress.finished == 1
    assert list_tree(settings().home / "models") == [
        "tiny-1b",
        "tiny-1b/manifest.json",
        "tiny-1b/tiny-1b.gguf",
    ]


def test_a_fetched_file_is_neither_asked_for_nor_read_again(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile
) -> None:
    path = fetch_file(model, settings(), recorder())
    asked = len(hub.tokens)
    path.chmod(0)  # reading it would fail for a user who is not root
    progress = recorder()
    assert fetch_file(model, settings(), progress) == path
    assert len(hub.tokens) == asked
    assert (progress.starts, progress.notes) == ([], [])


def test_a_broken_connection_is_taken_up_at_the_next_byte(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.break_after[FILE] = [100_000, 50_000]
    assert fetch_file(model, settings(), recorder()).read_bytes() == data
    ranges = hub.ranges(FILE)
    assert len(ranges) == 3
    assert ranges[0] is None
    first, second = (int(header.removeprefix("bytes=")[:-1]) for header in ranges[1:])
    assert 0 < first <= 100_000
    assert first < second <= first + 50_000


def test_a_hub_that_breaks_for_good_is_resumed_by_the_next_attempt(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.break_after[FILE] = [150_000, 0, 0, 0, 0]
    with pytest.raises(DownloadError, match=r"broke off after [\d,]+ of 400,000 bytes"):
        fetch_file(model, settings(), recorder())
    assert len(hub.ranges(FILE)) == 5
    hub.requests.clear()
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    ((_, _, resumed_at),) = progress.starts
    assert resumed_at > 0
    assert hub.ranges(FILE) == [f"bytes={resumed_at}-"]


def test_a_hub_that_cannot_resume_sends_all_again(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.break_after[FILE] = [100_000]
    hub.resumes = False
    assert fetch_file(model, settings(), recorder()).read_bytes() == data
    assert len(hub.ranges(FILE)) == 2


def test_an_interrupt_keeps_what_came(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_file(model, settings(), recorder(act_at=200_000, act=interrupt))
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert progress.starts[0][2] >= 200_000


PULL = """
import os, signal, sys
from farthing.download import hub
from farthing.download.fetch import fetch_file
from farthing.download.progress import Silent
from farthing.download.settings import DownloadSettings
from farthing.download.source import HubFile, ModelFile

hub._MARK_BYTES = int(sys.argv[3])

class Killed(Silent):
    def advance(self, done, part):
        if done >= 250_000:
            os.kill(os.getpid(), signal.SIGKILL)

model = ModelFile("tiny-1b", "tiny-1b.gguf", 400_000, sys.argv[1], (HubFile(*sys.argv[2].split()),))
fetch_file(model, DownloadSettings.from_environment(), Killed())
"""


@pytest.mark.parametrize(("mark_bytes", "kept"), [(1, 250_000), (10**9, 0)])
def test_a_killed_process_leaves_what_the_next_uses_or_removes(
    hub: Any,
    settings: Settings,
    recorder: Any,
    model: ModelFile,
    data: bytes,
    start_child: Any,
    list_tree: Any,
    mark_bytes: int,
    kept: int,
) -> None:
    with start_child(PULL, model.checksum, f"{REPO} {FILE}", str(mark_bytes)) as child:
        assert child.wait(60) == -signal.SIGKILL
    (broken,) = Store(settings().home).unfinished().values()
    assert broken.name == "tiny-1b"
    assert kept <= broken.done <= 400_000
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert progress.starts == [("tiny-1b", 400_000, broken.done)]
    assert list_tree(settings().home / "models") == [
        "tiny-1b",
        "tiny-1b/manifest.json",
        "tiny-1b/tiny-1b.gguf",
    ]


def test_another_file_than_the_pinned_is_refused_before_a_byte(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.repositories[REPO][FILE] = data[::-1]
    with pytest.raises(DownloadError, match=r"is another file \(sha256:.*expected sha256:"):
        fetch_file(model, settings(), recorder())
    assert hub.ranges(FILE) == []
    assert not settings().home.exists()


def test_wrong_bytes_leave_nothing(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.served[FILE] = data[::-1]
    with pytest.raises(DownloadError, match=r"checksum is sha256:.*nothing kept"):
        fetch_file(model, settings(), recorder())
    assert not settings().home.exists()


def test_a_resumed_file_that_is_wrong_is_fetched_once_more_from_its_start(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.served[FILE] = data[::-1]
    hub.break_after[FILE] = [150_000, 0, 0, 0, 0]
    with pytest.raises(DownloadError):
        fetch_file(model, settings(), recorder())
    del hub.served[FILE]
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert [done for _, _, done in progress.starts][1] == 0
    assert any("starting over" in note for note in progress.notes)


def test_more_bytes_than_announced_are_refused(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.served[FILE] = data + b"more"
    with pytest.raises(DownloadError, match="more than the announced 400,000 bytes"):
        fetch_file(model, settings(), recorder())


def test_a_busy_hub_is_asked_again(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, data: bytes
) -> None:
    hub.status[FILE] = [503, 429]
    assert fetch_file(model, settings(), recorder()).read_bytes() == data


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "needs a token"), (403, "is not open to you"), (404, "no file at"), (418, "HTTP 418")],
)
def test_a_refusal_is_said_in_words(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, status: int, reason: str
) -> None:
    hub.status[FILE] = [status]
    with pytest.raises(DownloadError, match=reason):
        fetch_file(model, settings(), recorder())
    assert len(hub.ranges(FILE)) == 1
    assert not settings().home.exists()


def test_the_users_token_goes_to_the_hub(
    hub: Any, settings: Settings, recorder: Any, model: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch_file(model, settings(), recorder())
    assert hub.tokens == ["Bearer hf_secret"] * 2


@pytest.mark.parametrize(("repository", "revision"), [("owner/none", "main"), (REPO, "none")])
def test_what_the_hub_does_not_have_is_missing(
    hub: Any, settings: Settings, model: ModelFile, repository: str, revision: str
) -> None:
    with pytest.raises(RepositoryMissingError, match="none"):
        list_repository(repository, revision, settings())


def test_a_failing_hub_says_its_status(hub: Any, settings: Settings, model: ModelFile) -> None:
    hub.status[REPO] = [500]
    with pytest.raises(SourceUnavailable, match="HTTP 500"):
        list_repository(REPO, "main", settings())


def test_a_closed_network_is_noticed_at_once(settings: Settings) -> None:
    begin = time.monotonic()
    with pytest.raises(SourceUnavailable, match="no connection"):
        list_repository(REPO, "main", settings())
    assert time.monotonic() - begin < 3


def test_a_hub_that_never_answers_is_given_up_in_time(
    silent_hub: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = time.monotonic()
    with pytest.raises(SourceUnavailable, match=r"no answer within 0\.5 s"):
        list_repository(REPO, "main", replace(settings(), hub_timeout=0.5))
    assert time.monotonic() - begin < 3


def test_a_name_server_that_never_answers_is_given_up_in_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object, **kwargs: object) -> None:
        time.sleep(4)
        raise socket.gaierror("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    begin = time.monotonic()
    with pytest.raises(SourceUnavailable, match=r"no answer within 0\.5 s"):
        list_repository(REPO, "main", replace(settings(), hub_timeout=0.5))
    assert time.monotonic() - begin < 3


def test_offline_asks_nobody(hub: Any, settings: Settings, recorder: Any, model: ModelFile) -> None:
    with pytest.raises(DownloadError, match="offline mode is on"):
        fetch_file(model, settings().with_offline(True), recorder())
    assert hub.tokens == []
    assert not settings().home.exists()
