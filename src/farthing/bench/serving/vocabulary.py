"""Who turns text into tokens and back, so that prompts have the lengths that were asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from farthing.bench.serving.http_client import HttpClient
from farthing.errors import FarthingError, InvalidParameterError

_AT_A_TIME = 16  # questions to a server

_WORDS = (
    "about above across after again against all along always among another any around ask away "
    "back because become been before begin being below best better between both bring build but "
    "call came can car carry change children city close come could country cut day did different "
    "does done down draw each early earth east eat end enough even every example eye face fall "
    "family far farm father feet few field find fire first fish five follow food for form found "
    "four friend from front full gave girl give gold good great green ground group grow had half "
    "hand hard has have head hear help here high him his home horse hot hour house how hundred "
    "idea important in inch island it just keep kind king know land language large last late lead "
    "learn leave left less let letter life light like line list listen little live long look low "
    "machine made make man many map mark may mean measure men might mile mind minute money moon "
    "more morning most mother mountain move much music must name near need never new next night "
    "north notice number object ocean of off often old once one only open order other our out "
    "over own page paper part pass pattern people perhaps person picture piece place plain plan "
    "plant point power problem product pull put question quick rain ran reach read ready real "
    "red rest right river road rock room round rule run said same saw say school science sea "
    "second see seem self set several she ship short should show side simple since sing sit six "
    "size sleep slow small snow some song soon sound south space special spell stand star start "
    "state step stone stood stop story street strong study such sun sure surface table take talk "
    "teach tell ten test than that their them then there these they thing think this thought "
    "three through time together told too took top toward town travel tree true try turn two "
    "under unit until up usual very voice vowel wait walk war warm watch water way week weight "
    "well went were west what wheel when where which while white whole why will wind winter wish "
    "with wonder wood word work world would write year young"
)


class Vocabulary(Protocol):
    """Text to tokens and back."""

    name: str

    async def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Tokens of ``text``; ``special``: with what a model puts around a whole prompt."""

    async def decode(self, tokens: Sequence[int]) -> str:
        """Text of ``tokens``."""

    async def ordinary(self) -> list[int]:
        """Tokens that prompts can be made of: text, none of them special."""


class ServerVocabulary:
    """The server's own, by its ``/tokenize`` and ``/detokenize``: vLLM's or llama-server's."""

    def __init__(self, client: HttpClient, model: str, timeout: float) -> None:
        self.name = f"{client.address.url}/tokenize"
        self._client = client
        self._model = model
        self._timeout = timeout
        self._places = asyncio.Semaphore(_AT_A_TIME)

    async def encode(self, text: str, *, special: bool = False) -> list[int]:
        """As :meth:`Vocabulary.encode`. Raises :class:`FarthingError`: the server does not."""
        question = {
            **{"prompt": text, "add_special_tokens": special},
            **{"content": text, "add_special": special},  # llama-server's names
        }
        answer = await self._ask("/tokenize", question)
        match answer:
            case {"tokens": [*tokens]} if all(isinstance(token, int) for token in tokens):
                return tokens
        raise self._useless("/tokenize", "its answer has no list of tokens")

    async def decode(self, tokens: Sequence[int]) -> str:
        """As :meth:`Vocabulary.decode`. Raises :class:`FarthingError`: the server does not."""
        answer = await self._ask("/detokenize", {"tokens": list(tokens)})
        match answer:
            case {"prompt": str(text)} | {"content": str(text)}:
                return text
        raise self._useless("/detokenize", "its answer has no text")

    async def ordinary(self) -> list[int]:
        """Those of some hundred common words; nobody says how many there are in all."""
        return sorted(set(await self.encode(" " + _WORDS)))

    async def _ask(self, path: str, question: dict[str, Any]) -> Any:
        body = json.dumps({"model": self._model, **question}).encode()
        async with self._places:
            exchange = await self._client.send(
                self._client.request("POST", path, body), self._timeout
            )
        if exchange.problem is not None:
            raise self._useless(path, exchange.problem)
        try:
            return json.loads(exchange.body)
        except (ValueError, RecursionError):
            raise self._useless(path, "its answer is not JSON") from None

    def _useless(self, path: str, problem: str) -> FarthingError:
        return FarthingError(
            f"{self._client.address.url}{path}: {problem}; prompts of exact lengths need it, or "
            "--tokenizer with a model of this machine"
        )


class LocalVocabulary:
    """That of a model's file or folder on this machine. Raises as ``open_checkpoint``."""

    def __init__(self, path: Path, name: str) -> None:
        from farthing.models.checkpoint import open_checkpoint
        from farthing.models.registry import FAMILIES
        from farthing.tokenization import JsonTokenizerFile, Tokenizer

        self.name = name
        if path.is_file() and path.name.endswith("tokenizer.json"):
            self._tokenizer = Tokenizer.from_source(JsonTokenizerFile(path))
            return
        source = open_checkpoint(path, FAMILIES).tokenizer
        if source is None:
            raise InvalidParameterError(f"--tokenizer {name}: the model has no tokenizer")
        self._tokenizer = Tokenizer.from_source(source)

    async def encode(self, text: str, *, special: bool = False) -> list[int]:
        """As :meth:`Vocabulary.encode`."""
        return self._tokenizer.encode(text, add_special_tokens=special, allow_control=True)

    async def decode(self, tokens: Sequence[int]) -> str:
        """As :meth:`Vocabulary.decode`."""
        return self._tokenizer.decode(tokens, skip_special=False)

    async def ordinary(self) -> list[int]:
        """All that stand for whole characters."""
        tokenizer = self._tokenizer
        return [
            token
            for token in range(tokenizer.vocab_size)
            if token not in tokenizer.control_ids and _is_text(tokenizer.token_bytes(token))
        ]


def _is_text(data: bytes) -> bool:
    try:
        return data.decode().strip() != ""
    except UnicodeDecodeError:
        return False
