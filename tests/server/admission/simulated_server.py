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

    prompt_tokens: int  # of each prompt
    lengths: Sequence[int]  # of each answer, prompt by prompt, were it not for max_tokens
    max_tokens: int
    num_prompts: int = 1  # of as many choices each
    principal: Principal = ANYBODY
    whole_seconds: bool = False  # reads Retry-After, not Retry-After-Ms
    counts: bool = False  # says how often it has come
    ignore_eos: bool = False
    came: list[float] = field(default_factory=list)
    promised: list[float] = field(default_factory=list)  # seconds, of each refusal
    codes: Counter[str] = field(default_factory=Counter)
    begun: float = math.nan  # all its answers
    ended: float = math.nan

    @property
    def choices(self) -> int:
        """Answers to each prompt."""
        return len(self.lengths) // self.num_prompts


class InWork:
    """A client that was let in, from then until its last answer, as far as steps have told."""

    def __init__(self, client: Client, place: Place, keys: Sequence[int]) -> None:
        self.client = client
        self.place = place
        self.keys = keys  # of its prompts
        self.to_begin = self.unended = len(client.lengths)  # answers
        self.unread = set(keys)


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
        self._inbox: list[InWork] = []
        self._open: list[InWork] = []
        self._of: dict[str, tuple[int, InWork]] = {}  # by request id; with the prompt's key
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
        place = self._enter(client)
        if isinstance(place, RequestError):
            assert place.status == 429
            assert place.retry_after is not None
            wait = place.retry_after
            client.promised.append(wait)
            client.codes[place.code or ""] += 1
            self._push(client, time + (math.ceil(wait) if client.whole_seconds else wait))
            return
        let_in = InWork(client, place, range(self._keys - client.num_prompts + 1, self._keys + 1))
        self._open.append(let_in)
        self._inbox.append(let_in)
        self._check()

    def _enter(self, client: Client) -> Place | RequestError:
        asks = []
        for _ in range(client.num_prompts):
            self._keys += 1
            asks.append(
                Ask(
                    self._keys,
                    client.prompt_tokens,
                    client.choices,
                    client.max_tokens,
                    client.ignore_eos,
                    client.principal.name or f"client {id(client)}",
                )
            )
        try:
            retries = len(client.promised) if client.counts else None
            return self.admission.enter(client.principal, asks, retries=retries)
        except RequestError as error:
            return error

    def _check(self) -> None:
        numbers = self.admission.numbers
        waiting = [each for each in self._open if each.to_begin]
        assert numbers.waiting_requests == len(waiting) <= self.limits.max_requests
        tokens = sum(each.client.prompt_tokens * len(each.unread) for each in waiting)
        assert numbers.waiting_tokens == tokens <= self.limits.max_prompt_tokens
        self.most_waiting = max(self.most_waiting, len(waiting))
        self.most_tokens = max(self.most_tokens, tokens)

    def _submit(self, let_in: InWork) -> None:
        client = let_in.client
        user = client.principal.name or f"client {id(client)}"
        lengths = iter(client.lengths)
        for key in let_in.keys:
            params = SamplingParams(
                max_tokens=client.max_tokens,
                n=client.choices,
                seed=key,
                ignore_eos=client.ignore_eos,
            )
            # No two prompts are alike, so that nothing is found in the cache.
            head = [8 + (key >> shift & 31) for shift in (0, 5, 10, 15)]
            prompt = (head + [8] * client.prompt_tokens)[: client.prompt_tokens]
            requests = self.engine.make_request(prompt, params, user=user)
            for request in requests:
                self._of[request.request_id] = key, let_in
                self.runner.lengths[request.request_id] = next(lengths)
            self.engine.add_request(requests[0], self.now)

    def _step(self) -> None:
        inbox, self._inbox = self._inbox, []
        for let_in in inbox:
            self._submit(let_in)
        started = self.now
        self.engine.step(started)
        rows = self.runner.last.rows
        decode = sum(r.num_tokens for r in rows if r.start >= r.request.num_prompt_tokens)
        prefill = sum(r.num_tokens for r in rows) - decode
        ended = started + self.cost(decode, prefill)
        while self._arrivals and self._arrivals[0][0] < ended:
            self._let_in()
        self.now = ended
        self._tell(started, ended, decode, prefill)
        for let_in in [each for each in self._open if not each.unended]:
            self._open.remove(let_in)
            let_in.client.ended = ended
            let_in.place.leave()
        self.engine.scheduler.begun.clear()
        self.engine.scheduler.ended.clear()
        self._check()

    def _tell(self, started: float, ended: float, decode: int, prefill: int) -> None:
        """What the engine process tells of a step."""
        begun, progress = [], []
        for request in self.engine.scheduler.begun:
            key, let_in = self._of[request.request_id]
            begun.append((key, request.choice))
            let_in.unread.discard(key)
            let_in.to_begin -= 1
            if not let_in.to_begin:
                let_in.client.begun = ended
                self.freed.append(ended)
        for request in [rows.request for rows in self.runner.last.rows]:
            key, let_in = self._of[request.request_id]
            read = min(request.num_computed_tokens, request.num_prompt_tokens)
            sampled = len(request.output_token_ids)
            progress.append((key, request.choice, read, sampled, request.finished))
            if request.finished:
                let_in.unended -= 1
                del self._of[request.request_id], self.runner.lengths[request.request_id]
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


def noisy_cost(
    rng: Random, a: float = 0.03, b: float = 0.001, c: float = 0.002, noise: float = 0.1
) -> Cost:
    """Steps of ``a + b * decode + c * prefill`` seconds, log-normal noise, one in 100 a hiccup."""

    def cost(decode: int, prefill: int) -> float:
        seconds = (a + b * decode + c * prefill) * math.exp(rng.gauss(0, noise))
        return seconds * 8 if rng.random() < 0.01 else seconds

    return cost
