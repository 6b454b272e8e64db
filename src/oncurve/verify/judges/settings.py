"""Where a judge is reached and what it is asked."""

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from oncurve.types import Settings


class EndpointSettings(Settings):
    """A server with the chat interface of OpenAI, and how patient to be with it."""

    url: str = "http://127.0.0.1:8000/v1"
    """Up to ``/v1``; ``/chat/completions`` is added."""

    model: str = Field("judge", min_length=1)
    """Its name for the model."""

    api_key_env: str = Field("", pattern=r"^[A-Za-z0-9_]*$")
    """Name of the environment variable that holds the key; empty: no key is sent. The key itself is never recorded."""

    timeout_s: float = Field(60.0, gt=0, le=3600)
    """Wall seconds for one attempt, from connecting to the last byte."""

    attempts: int = Field(3, ge=1, le=20)
    """Tries of one request, when the server is unreachable, late, overloaded or broken."""

    backoff_s: float = Field(0.5, ge=0, le=60)
    """Pause before the second try, doubled before each further one; a server's ``Retry-After`` counts where longer."""

    max_concurrent: int = Field(8, ge=1, le=256)
    """Requests in flight at once."""

    max_reply_tokens: int = Field(512, ge=1, le=32768)
    """Longest reply that is asked for."""

    max_reply_bytes: int = Field(1_000_000, ge=1000, le=100_000_000)
    """Longest reply that is read."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must be http://host/... or https://host/..., got {url!r}")
        if parts.username or parts.password or parts.query:
            raise ValueError("url holds a user, password or query, which would be recorded. Name a key by api_key_env.")
        return url.rstrip("/")


class JudgeSettings(Settings):
    """What a judge is shown, asked, and how its verdict becomes a reward. Judges are fallible, and can be talked to."""

    endpoint: EndpointSettings = EndpointSettings()

    mode: Literal["score", "pair"] = "score"
    """``score``: a number. ``pair``: the completion against the task's reference, in both orders."""

    criteria: str = Field("Is the answer right, complete and clear?", min_length=1)
    """What the judge is asked to look at."""

    min_score: float = Field(0.0, ge=-1e6, le=1e6)
    """Lowest score; reward 0."""

    max_score: float = Field(10.0, ge=-1e6, le=1e6)
    """Highest score; reward 1."""

    correct_at: float = Field(0.5, gt=0, le=1)
    """The completion counts as correct when the reward reaches this."""

    on_disagreement: Literal["no_verdict", "half"] = "no_verdict"
    """``pair``: when swapping the two answers changes the choice. ``half``: reward 0.5."""

    show_reference: bool = True
    """``score``: show ``meta["reference"]``, or else the gold."""

    show_thinking: bool = False
    """Show what stands before ``</think>`` too; it is where completions are most persuasive."""

    max_chars: int = Field(20_000, ge=1, le=1_000_000)
    """A longer answer is wrong, and the judge is not asked."""

    probe_rows: int = Field(4, ge=0, le=1000)
    """Tasks on which a run probes the judge before its first step: about 30 requests each, 60 for ``pair``. 0: none."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.min_score >= self.max_score:
            raise ValueError(f"min_score {self.min_score:g} must be below max_score {self.max_score:g}")
        return self
