"""Train mode and eval mode."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """The model in eval mode; afterwards as before."""
    was_training = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(was_training)
