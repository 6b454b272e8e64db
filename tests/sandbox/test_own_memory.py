"""The peak of a process is its own."""

import subprocess
import sys

from oncurve.sandbox.own_memory import peak_bytes

MIB = 1024**2
CHILD = "from oncurve.sandbox.own_memory import peak_bytes; print(peak_bytes())"


def test_what_was_held_counts_after_it_is_given_back():
    before = peak_bytes()
    size = before + 64 * MIB
    held = bytearray(b"1") * size
    assert peak_bytes() >= size
    del held
    assert peak_bytes() >= size


def test_a_small_program_started_by_a_large_one_is_small():
    held = bytearray(b"1") * (256 * MIB)
    found = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True).stdout
    assert int(found) < len(held) // 2
