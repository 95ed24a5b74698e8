"""Admission before the production engine, on a virtual clock with synthetic times of steps."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from farthing.engine.draws import Draw
from farthing.engine.engine import Engine, EngineConfig
from farthing.engine.request import Request
from farthing.engine.schedule import Schedule
from farthing.engine.scheduler import SchedulerConfig
from farthing.openai_protocol.errors import RequestError
from farthing.sampling.grammar.compiler import GrammarCompiler
from farthing.sampling.grammar.vocabulary import GrammarVocabulary
from farthing.sampling.params import SamplingParams
from farthing.sampling.vocabulary import SamplingVocabulary
from farthing.server.admission.admission import Admission, Ask, Place
from farthing.server.admission.limits import QueueLimits
from farthing.server.principal import ANYBODY, Principal
from farthing.server.seam.messages import Stepped
from sampling.word_vocabulary import WordVocabulary

VOCAB_SIZE, EOS, WORD = 64, 3, 9
_WORDS = WordVocabulary(VOCAB_SIZE)
_VOCABULARY = SamplingVocabulary(_WORDS, VOCAB_SIZE)
_GRAMMARS = GrammarCompiler(
    GrammarVocabulary(VOCAB_SIZE, _WORDS.token_bytes, (), (EOS,), lambda text: ())
)

Cost = Callable[[int, int], float]  # seconds of a step of so many decoding and prompt rows


class LengthRunner:
    """A model that ends each answer at the length that was drawn for it."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.lengths: dict[str, int] = {}
        self.last = Schedule()

    def run(self, schedule: Schedule) -> dict[str, Draw]:
        self.last = schedule
        draws = {}
        for rows in schedule.rows:
            if rows.samples:
                request = rows.request
                ends = len(request.output_token_ids) + 1 >= self.lengths[request.request_id]
                draws[request.request_id] = Draw(request, EOS if ends else WORD)
        return draws


@dataclass
class Client:
    """Asks until it is let in, as often as it is told to come again."""

    prompt_tokens: int
    lengths: Sequence[int]  # of each choice, were it not for max_tokens
    max_tokens: int
    principal: Principal = ANYBODY
    whole_seconds: bool = False  # reads Retry-After, not Retry-After-Ms
    counts: bool = False  # says how often it has come
    ignore_eos: bool = False
    came: list[float] = field(default_factory=list)
    promised: list[float] = field(default_factory=list)  # seconds, of each refusal
    codes: Counter[str] = field(default_factory=Counter)
    begun: float = math.nan
    ended: float = math.nan


class SimulatedServer:
    """One engine and all who come; ``admission`` may be wrong on purpose."""

    def __init__(
        self,
        limits: QueueLimits,
        cost: Cost,
        *,
        max_num_seqs: int = 32,
        max_num_batched_tokens: int = 512,
        num_blocks: int = 4096,
        rng: Random,
        admission: Callable[..., Admission] = Admission,
    ) -> None:
        self.now = 1000.0
        self.cost = cost
        self.runner = LengthRunner(num_blocks)
        scheduler = SchedulerConfig(max_num_seqs, max_num_batched_tokens)
        self.engine = Engine(
            self.runner,
            EngineConfig(min(num_blocks * 16, 32768), scheduler),
            vocabulary=_VOCABULARY,
            grammars=_GRAMMARS,
            eos_token_ids=(EOS,),
        )
        self.admission = admission(
            limits,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            clock=lambda: self.now,
        )
        self.limits = limits
        self.freed: list[float] = []  # when a request began, and so left the queue
        self.most_waiting = 0
        self.most_tokens = 0
        self.clients: list[Client] = []
        self._rng = rng
        self._arrivals: list[tuple[float, int, Client]] = []
        self._inbox: list[tuple[int, Client]] = []
        self._open: dict[int, tuple[Client, Place, list[Request]]] = {}
        self._keys = 0
        self._num_arrivals = 0

    def arrive(self, client: Client, at: float) -> None:
        """Lets a client come ``at`` seconds from the start."""
        self.clients.append(client)
        self._push(client, 1000.0 + at)

    def _push(self, client: Client, time: float) -> None:
        self._num_arrivals += 1
        heapq.heappush(self._arrivals, (time, self._num_arrivals, client))

    def run(self, until: float = math.inf) -> None:
        """Plays until nobody comes any more and nothing is in work."""
        while self.now < 1000.0 + until:
            if not self.engine.has_work and not self._inbox:
                if not self._arrivals:
                    return
                self._let_in()
            else:
                self._step()

    def _let_in(self) -> None:
        """The next who comes."""
        time, _, client = heapq.heappop(self._arrivals)
        self.now = time
        client.came.append(time)
        self._keys += 1
        choices, ends = len(client.lengths), client.max_tokens
        ask = Ask(self._keys, client.prompt_tokens, choices, ends, client.ignore_eos)
        place = self._enter(client, ask)
        if isinstance(place, RequestError):
            assert place.status == 429
            assert place.retry_after is not None
            wait = place.retry_after
            client.promised.append(wait)
            client.codes[place.code or ""] += 1
            self._push(client, time + (math.ceil(wait) if client.whole_seconds else wait))
            return
        self._open[self._keys] = client, place, []
        self._inbox.append((self._keys, client))
        self._check()

    def _enter(self, client: Client, ask: Ask) -> Place | RequestError:
        try:
            retries = len(client.promised) if client.counts else None
            return self.admission.enter(client.principal, [ask], retries=retries)
        except RequestError as error:
            return error

    def _check(self) -> None:
        numbers = self.admission.numbers
        waiting = [client for client, _, _ in self._open.values() if math.isnan(client.begun)]
        assert numbers.waiting_requests == len(waiting) <= self.limits.max_requests
        tokens = sum(client.prompt_tokens for client in waiting)
        assert numbers.waiting_tokens == tokens <= self.limits.max_prompt_tokens
        self.most_waiting = max(self.most_waiting, len(waiting))
        self.most_tokens = max(self.most_tokens, tokens)

    def _submit(self, key: int, client: Client) -> None:
        params = SamplingParams(
            max_tokens=client.max_tokens,
            n=len(client.lengths),
            seed=key,
            ignore_eos=client.ignore_eos,
        )
        # No two prompts are alike, so that nothing is found in the cache.
        head = [8 + (key >> shift & 31) for shift in (0, 5, 10, 15)]
        prompt = (head + [8] * client.prompt_tokens)[: client.prompt_tokens]
        requests = self.engine.make_request(prompt, params)
        for request, length in zip(requests, client.lengths, strict=True):
            self.runner.lengths[request.request_id] = length
        self._open[key][2].extend(requests)
        self.engine.add_request(requests[0], self.now)

    def _step(self) -> None:
        inbox, self._inbox = self._inbox, []
        for key, client in inbox:
            self._submit(key, client)
        started = self.now
        self.engine.step(started)
        rows = self.runner.last.rows
        decode = sum(r.num_tokens for r in rows if r.start >= r.request.num_prompt_tokens)
        prefill = sum(r.num_tokens for r in rows) - decode
        ended = started + self.cost(decode, prefill)
        with_rows = {r.request.request_id for r in rows}
        while self._arrivals and self._arrivals[0][0] < ended:
            self._let_in()
        self.now = ended
        begun, progress, over = [], [], []
        for key, (client, _, requests) in self._open.items():
            if not requests:
                continue
            if math.isnan(client.begun) and requests[0].admitted_at is not None:
                client.begun = ended
                self.freed.append(ended)
                begun.append(key)
            if any(request.request_id in with_rows for request in requests):
                read = min(requests[0].num_computed_tokens, client.prompt_tokens)
                sampled = sum(len(request.output_token_ids) for request in requests)
                unfinished = sum(not request.finished for request in requests)
                progress.append((key, read, sampled, unfinished))
                if not unfinished:
                    over.append(key)
        load = self.engine.load()
        self.admission.on_step(
            Stepped(
                started=started,
                ended=ended,
                decode_rows=decode,
                prefill_rows=prefill,
                num_running=load.num_running,
                num_waiting=load.num_waiting,
                begun=tuple(begun),
                progress=tuple(progress),
                chunks=(),
                outputs=(),
                failures=(),
            )
        )
        for key in over:
            client, place, requests = self._open.pop(key)
            client.ended = ended
            place.leave()
            for request in requests:
                del self.runner.lengths[request.request_id]
        self.engine.scheduler.ended.clear()
        self._check()


def noisy_cost(
    rng: Random, a: float = 0.03, b: float = 0.001, c: float = 0.002, noise: float = 0.1
) -> Cost:
    """Steps of ``a + b * decode + c * prefill`` seconds, log-normal noise, one in 100 a hiccup."""

    def cost(decode: int, prefill: int) -> float:
        seconds = (a + b * decode + c * prefill) * math.exp(rng.gauss(0, noise))
        return seconds * 8 if rng.random() < 0.01 else seconds

    return cost
