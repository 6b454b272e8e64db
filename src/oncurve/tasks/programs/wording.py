"""How a chat asks for a program whose beginning is given."""


def complete_this(opening: str) -> str:
    """The question of a chat prompt."""
    return (
        "Complete this Python function. Answer with the whole function in one block of code and nothing else.\n"
        f"```python\n{opening.rstrip()}\n```"
    )
