"""Rollouts of several turns: the policy calls a tool, the environment answers, the policy goes on.

    prompt ► sampled .. call ► [answer] ► sampled .. call ► [answer] ► sampled .. terminator

Sampled ids stay as they were drawn; an answer is encoded once and stands between them. Whatever a call did is found
in the environment afterwards, never in the text.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from pydantic import Field

from oncurve.model import Policy
from oncurve.rollout.dialogue import Frame, frame_of
from oncurve.rollout.engine import Announce, Engine, Request, added
from oncurve.types import Completion, DataError, Episode, FinishReason, Inserted, Sampling, Settings, derive_seed
from oncurve.verify.environments import (
    Answer,
    Call,
    EnvironmentSpec,
    Scene,
    Stage,
    closing,
    judge,
    read_call,
)


class ToolSettings(Settings):
    """Episodes of tool tasks."""

    max_turns: int = Field(6, ge=1, le=1000)
    """Turns that the policy gets. A call in the last one is carried out, and its answer is not read any more."""

    timeout_s: float = Field(10.0, gt=0, le=3600)
    """Wall seconds for the environments of up to 16 episodes; then their process is killed. What an environment itself
    takes too long for is counted otherwise, and is the policy's mistake: see the limits of each."""


@dataclass(slots=True)
class _Play:
    """One episode while it goes on."""

    place: int
    """Of the request among all."""
    request: Request
    spec: EnvironmentSpec
    frame: Frame
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    inserted: list[Inserted] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    """Those that could be read."""
    num_unread: int = 0
    """The others."""
    scene: Scene | None = None
    """After ``calls``."""
    finish_reason: FinishReason = FinishReason.LENGTH
    prefix: tuple[int, ...] = ()
    """All ids so far."""
    seconds: float = 0.0

    def next_turn(self, turn: int, max_tokens: int) -> Request:
        """What the engine is asked for: the seed of the turn depends on that of the episode alone."""
        seed = self.request.seed if turn == 0 else derive_seed("turn", self.request.seed, turn)
        return replace(
            self.request,
            prompt_ids=self.prefix,
            seed=seed,
            max_tokens=max_tokens - len(self.token_ids),
            stop=(closing(self.spec.syntax),),
            environment=None,
        )

    def episode(self) -> Episode:
        """What became of the environment. Call only when the scene is known."""
        found = judge(self.spec, self.scene or Scene())
        return replace(
            found, num_calls=found.num_calls + self.num_unread, num_errors=found.num_errors + self.num_unread
        )


class ToolEngine:
    """Plays the requests that name an environment, and leaves the others to the engine below. Close it at the end.

    Args:
        engine: samples; it must know ``Request.stop`` and ``Request.max_tokens``.
        policy: encodes answers.
        settings: turns, time.
    """

    def __init__(self, engine: Engine, policy: Policy, settings: ToolSettings) -> None:
        self._engine = engine
        self._policy = policy
        self._settings = settings
        self._stage = Stage(settings.timeout_s)
        self._frames: dict[tuple[str, bool], Frame] = {}
        self._seconds: list[dict[str, float]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def note(self) -> str:
        """Why the engine below does not sample in its fastest way; empty when it does, or does not say."""
        return str(getattr(self._engine, "note", ""))

    def seconds(self) -> dict[str, float]:
        """See ``Engine.seconds``: those of the engine below, over all turns."""
        return added(self._seconds)

    def close(self) -> None:
        """End the process of the environments."""
        self._stage.close()

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        policy_version: int,
        on_completion: Announce | None = None,
    ) -> list[Completion]:
        """See ``Engine.generate``. ``sampling.max_tokens`` counts the sampled tokens of all turns together."""
        completions: dict[int, Completion] = {}

        def finish(place: int, completion: Completion) -> None:
            completions[place] = completion
            if on_completion is not None:
                on_completion(place, completion)

        self._seconds.clear()
        places = [place for place, request in enumerate(requests) if request.environment is None]
        self._engine.generate(
            [requests[place] for place in places],
            sampling,
            policy_version=policy_version,
            on_completion=lambda place, completion: finish(places[place], completion),
        )
        self._seconds.append(self._engine.seconds())
        plays = [self._begin(place, one) for place, one in enumerate(requests) if one.environment is not None]
        for ended in self._play(plays, sampling, policy_version):
            for play in ended:
                finish(play.place, self._completion(play, sampling, policy_version))
        return [completions[place] for place in range(len(requests))]

    def _begin(self, place: int, request: Request) -> _Play:
        if request.environment is None:
            raise DataError(f"task {request.task_id} names no environment")
        spec = request.environment
        key = (spec.syntax, spec.is_chat)
        if key not in self._frames:
            self._frames[key] = frame_of(self._policy, spec)
        return _Play(place, request, spec, self._frames[key], prefix=request.prompt_ids)

    def _play(self, plays: Sequence[_Play], sampling: Sampling, policy_version: int) -> Iterator[list[_Play]]:
        """Turn by turn; yields the episodes that ended with a turn, their scenes known."""
        began, live = time.perf_counter(), list(plays)
        for turn in range(self._settings.max_turns):
            if not live:
                break
            asked = [play.next_turn(turn, sampling.max_tokens) for play in live]
            turns = self._engine.generate(asked, sampling, policy_version=policy_version)
            self._seconds.append(self._engine.seconds())
            answered = self._answer([play for play, said in zip(live, turns, strict=True) if self._take(play, said)])
            is_last = turn + 1 == self._settings.max_turns
            playing = live
            live = [play for play, answer in answered if not is_last and self._goes_on(play, answer, sampling)]
            going_on = {play.place for play in live}
            ended = [play for play in playing if play.place not in going_on]
            for play in ended:
                play.seconds = time.perf_counter() - began
            self._look(ended)
            yield ended

    def _take(self, play: _Play, said: Completion) -> bool:
        """Append a turn; True when it ends with the mark that closes a call."""
        play.token_ids += said.token_ids
        play.logprobs += said.old_logprobs
        play.prefix += said.token_ids
        is_over = said.token_ids[-1] in self._policy.terminators
        play.finish_reason = FinishReason.STOP if is_over else FinishReason.LENGTH
        if said.finish_reason is not FinishReason.STOP or is_over:
            return False
        (text,) = self._policy.spell([said.token_ids])
        return closing(play.spec.syntax) in text  # else it ended with a text of sampling.stop

    def _answer(self, calling: Sequence[_Play]) -> list[tuple[_Play, Answer]]:
        """Carry the calls out; an episode whose environment failed gets no answer and ends."""
        unread: dict[int, Answer] = {}
        for place, play in enumerate(calling):
            (said,) = self._policy.spell([play.token_ids[play.inserted[-1].after if play.inserted else 0 :]])
            try:
                play.calls.append(read_call(said, play.spec.code.tools, play.spec.syntax))
                play.scene = None
            except ValueError as error:
                play.num_unread += 1
                unread[place] = Answer(f"error: {error}"[: play.spec.code.limits["answer_chars"]], is_error=True)
        self._look(calling)
        answered = []
        for place, play in enumerate(calling):
            if play.scene is not None and play.scene.fault is None:
                answered.append((play, unread[place] if place in unread else play.scene.answers[-1]))
        return answered

    def _look(self, plays: Sequence[_Play]) -> None:
        """Find the scenes that are not known."""
        asked = [play for play in plays if play.scene is None]
        scenes = self._stage.play([(play.spec, play.calls) for play in asked]) if asked else []
        for play, scene in zip(asked, scenes, strict=True):
            play.scene = scene

    def _goes_on(self, play: _Play, answer: Answer, sampling: Sampling) -> bool:
        """Insert an answer, where it leaves room for one more token."""
        part = play.frame.around(self._policy, answer, play.token_ids)
        has_room = len(play.prefix) + len(part.token_ids) < self._policy.context_length
        if not has_room or len(play.token_ids) >= sampling.max_tokens:
            return False
        play.inserted.append(part)
        play.prefix += part.token_ids
        return True

    def _completion(self, play: _Play, sampling: Sampling, policy_version: int) -> Completion:
        return Completion(
            task_id=play.request.task_id,
            index=play.request.index,
            prompt_ids=play.request.prompt_ids,
            token_ids=tuple(play.token_ids),
            old_logprobs=tuple(play.logprobs),
            policy_version=policy_version,
            finish_reason=play.finish_reason,
            sampling=sampling,
            text=self._policy.decode(play.token_ids),
            seconds=play.seconds,
            inserted=tuple(play.inserted),
            episode=play.episode(),
        )
