"""The two ways in which a text is not accepted."""


class BadFormatError(ValueError):
    """The text has not the form that is asked for; the message is the evidence. The completion is wrong."""


class CannotCheckError(Exception):
    """The form cannot be decided; the completion gets no verdict.

    Args:
        cause: one word for the count: ``timeout``, ``limit``, ``bad_schema``, ``bad_tools``.
        evidence: one line for people.
    """

    def __init__(self, cause: str, evidence: str) -> None:
        super().__init__(evidence)
        self.cause = cause
        self.evidence = evidence
