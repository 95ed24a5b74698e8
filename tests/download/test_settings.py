from __future__ import annotations

import os
from pathlib import Path

import pytest

from farthing.download.settings import DownloadSettings


def test_the_home_is_the_users_cache_folder(tmp_path: Path) -> None:
    here = DownloadSettings.from_environment({})
    assert here.home == Path.home() / ".cache" / "farthing"
    assert here.hub_cache == Path.home() / ".cache" / "huggingface" / "hub"
    assert not here.offline
    assert here.hub_endpoint is None
    xdg = DownloadSettings.from_environment({"XDG_CACHE_HOME": str(tmp_path)})
    assert xdg.home == tmp_path / "farthing"
    assert xdg.hub_cache == tmp_path / "huggingface" / "hub"
    own = DownloadSettings.from_environment({"FARTHING_HOME": "~/models", "HF_HOME": "/h"})
    assert own.home == Path.home() / "models"
    assert own.hub_cache == Path("/h/hub")
    assert DownloadSettings.from_environment({"HF_HUB_CACHE": "/c"}).hub_cache == Path("/c")


def test_the_model_path_is_a_list_of_folders() -> None:
    text = os.pathsep.join(["/a", "", "~/b"])
    found = DownloadSettings.from_environment({"FARTHING_MODEL_PATH": text}).model_path
    assert found == (Path("/a"), Path.home() / "b")


@pytest.mark.parametrize("value", ["1", "true", "Yes", "ON"])
@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_is_what_the_hub_client_says(name: str, value: str) -> None:
    assert DownloadSettings.from_environment({name: value}).offline
    assert not DownloadSettings.from_environment({name: "0"}).offline


def test_the_caller_has_the_last_word_on_offline() -> None:
    settings = DownloadSettings.from_environment({"HF_HUB_OFFLINE": "1"})
    assert settings.with_offline(None).offline
    assert not settings.with_offline(False).offline


@pytest.mark.parametrize("value", ["", "soon", "0", "-3"])
def test_a_time_limit_that_is_none_falls_back(value: str) -> None:
    assert DownloadSettings.from_environment({"HF_HUB_ETAG_TIMEOUT": value}).hub_timeout == 5.0
    assert DownloadSettings.from_environment({"HF_HUB_ETAG_TIMEOUT": "2"}).hub_timeout == 2.0
