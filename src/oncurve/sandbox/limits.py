"""What one program may use, in the words of the server that starts it."""

from typing import Any

from oncurve.sandbox.settings import SandboxSettings

_OWN_PROCESSES = 8
"""Server, inits and a tester beside the program's own, where they share a user."""


def run_limits(
    settings: SandboxSettings, seconds: float, *, address_space: bool = True, stack_bytes: int = 0
) -> dict[str, Any]:
    """What one program may use, as the server reads it.

    Args:
        settings: the sandbox.
        seconds: wall seconds that it may take in all; as CPU seconds this ends it when nothing else does.
        address_space: limit the address space too. Off for programs that reserve far more than they use (JavaScript).
        stack_bytes: soft limit of the stack; 0 leaves it as it is.
    """
    isolated = settings.isolation == "namespaces"
    return {
        "memory_bytes": settings.memory_bytes,
        "disk_bytes": settings.disk_bytes,
        "cpu_s": int(seconds) + 2,
        # The kernel counts a user's processes. As the user who grades, that would be all of theirs: we count.
        "processes": settings.max_processes + _OWN_PROCESSES if isolated else None,
        "processes_watched": settings.max_processes + (2 if isolated else 1) * _OWN_PROCESSES,
        "address_space": address_space,
        "stack_bytes": stack_bytes,
    }
