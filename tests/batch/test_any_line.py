"""Whatever is in a line, it gets one line, and none is the fault of ours."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farthing import LLM
from farthing.batch.lines import count_lines
from farthing.batch.output import open_output
from farthing.batch.run import BatchRun
from farthing.openai_protocol.chat import ChatRequest
from farthing.openai_protocol.completions import CompletionRequest
from farthing.openai_protocol.names import ModelNames
from support.batches import CHAT, COMPLETIONS, read_output

FIELDS = sorted({*ChatRequest.model_fields, *CompletionRequest.model_fields, "best_of", "suffix"})
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 40)
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "user", "text", "penny", "[a-c]+", 'start: "a"', "none"])
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "text", "json", "regex", "schema", "5", "a"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    body: dict[str, Any] = {"max_tokens": 2}
    if draw(st.booleans()):
        body["messages"] = [{"role": "user", "content": "a"}]
    else:
        body["prompt"] = "a"
    return body | draw(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3))


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    body = draw(bodies())
    values: dict[str, Any] = {
        "custom_id": draw(st.text(min_size=1, max_size=8)),
        "method": "POST",
        "url": CHAT if "messages" in body else COMPLETIONS,
        "body": body,
    }
    if draw(st.integers(0, 4)) == 0:
        values |= draw(st.dictionaries(st.sampled_from(sorted(values)), VALUES, max_size=2))
    raw = json.dumps(values, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 4)) == 0:  # a byte is wrong
        place = draw(st.integers(0, len(raw) - 1))
        raw = raw[:place] + draw(st.binary(max_size=2)) + raw[place + 1 :]
    return raw.replace(b"\n", b" ")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(given_lines=st.lists(lines(), max_size=12))
def test_any_line_gets_one_line(llm: LLM, given_lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in", Path(folder) / "out"
        source.write_bytes(b"\n".join(given_lines))
        total = count_lines(source)
        for earlier in (0, total):
            with open_output(target) as output:
                batch = BatchRun(
                    llm, ModelNames(["tiny"]), output, watch=lambda _: None, note=lambda _: None
                )
                batch.run(source)
            assert (batch.counts.finished, batch.counts.earlier) == (total, earlier)
            records = read_output(target) if total else []
            assert len(records) == total
        for record in records:
            body = record["response"]["body"]
            if record["response"]["status_code"] != 200:
                assert "internal error" not in body["error"]["message"], body
                assert len(json.dumps(body)) < 8192
    assert not llm.engine.has_work
