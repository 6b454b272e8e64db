"""Problems with known answers: generated or read from a file, split by content, sampled without replacement.

A task is a prompt, a gold answer and the name of the verifier that compares the two. Nothing here needs torch.
"""

from oncurve.tasks.curriculum import CurriculumSettings
from oncurve.tasks.generated import GeneratedTasks, guessed_example, worked_example
from oncurve.tasks.loading import Preview, load_tasks, preview
from oncurve.tasks.pairs import ExampleRow, PairRow, read_examples, read_pairs
from oncurve.tasks.problem import Problem, Source
from oncurve.tasks.prompts import prompt_text
from oncurve.tasks.registry import SOURCES
from oncurve.tasks.sampler import TaskSampler
from oncurve.tasks.settings import ColumnSettings, ExampleSettings, TaskSettings
from oncurve.tasks.steering import CurriculumSampler
from oncurve.tasks.taskset import UNBOUNDED, Note, TaskSet

__all__ = [
    "SOURCES",
    "UNBOUNDED",
    "ColumnSettings",
    "CurriculumSampler",
    "CurriculumSettings",
    "ExampleRow",
    "ExampleSettings",
    "GeneratedTasks",
    "Note",
    "PairRow",
    "Preview",
    "Problem",
    "Source",
    "TaskSampler",
    "TaskSet",
    "TaskSettings",
    "guessed_example",
    "load_tasks",
    "preview",
    "prompt_text",
    "read_examples",
    "read_pairs",
    "worked_example",
]
