"""The rows that an audit attacks when a user brings none."""

from oncurve.types import Task

_QUESTIONS = (
    ("How much is 6 times 7?", "42"),
    ("How much is 15 minus 8?", "7"),
    ("What is a quarter of 3, as a fraction?", "3/4"),
    ("How many minutes are two and a half hours?", "150"),
    ("What is the square of 25?", "625"),
    ("What is 3 minus 12?", "-9"),
    ("What is 0.2 plus 0.05?", "0.25"),
    ("How many days have 8 weeks?", "56"),
    ("How much is 1000 plus 234?", "1234"),
    ("What is 2 to the power of 10?", "1024"),
    ("How much is 91 divided by 7?", "13"),
    ("How many corners have 3 squares and 1 triangle?", "15"),
)


def default_tasks() -> list[Task]:
    """A dozen questions with numbers as answers."""
    return [
        Task(id=f"question-{number}", prompt=prompt, gold=gold, kind="question", verifier="answer")
        for number, (prompt, gold) in enumerate(_QUESTIONS)
    ]
