"""The list of models."""

from __future__ import annotations

import pytest

from support.served import Served


def test_each_name_is_a_model(served: Served) -> None:
    found = served.client.get("/v1/models").json()
    assert found["object"] == "list"
    assert [card["id"] for card in found["data"]] == ["tiny", "small/model"]
    for card in found["data"]:
        assert card["object"] == "model"
        assert (card["owned_by"], card["root"], card["parent"]) == ("farthing", "tiny", None)
        assert card["max_model_len"] == 256
        assert card["created"] > 1_700_000_000


@pytest.mark.parametrize("name", ["tiny", "small/model"])
def test_one_of_them_is_found_by_its_name(served: Served, name: str) -> None:
    listed = served.client.get("/v1/models").json()["data"]
    assert served.client.get(f"/v1/models/{name}").json() in listed


@pytest.mark.parametrize("name", ["other", "..%2f..%2fetc%2fpasswd", "tiny/", "../tiny", "%20"])
def test_another_name_is_404(served: Served, name: str) -> None:
    response = served.client.get(f"{served.url}/v1/models/{name}")
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"


def test_head_is_get_without_its_body(served: Served) -> None:
    for path in ("/v1/models", "/health", "/metrics", "/version"):
        assert served.client.head(path).status_code == 200
        assert served.client.head(path).content == b""


def test_other_methods_and_paths_are_errors_of_the_api(served: Served) -> None:
    wrong = served.client.delete("/v1/models")
    assert wrong.status_code == 405
    assert "GET" in wrong.headers["allow"]
    unknown = served.client.get("/v1/embeddings")
    assert unknown.status_code == 404
    for response in (wrong, unknown):
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    for path in ("/docs", "/redoc"):
        assert served.client.get(path).status_code == 404, "they load scripts from elsewhere"
