"""A scoring worker starts without torch."""

import importlib.util
import subprocess
import sys

import pytest

TORCH_FREE = ["oncurve.types", "oncurve.tasks", "oncurve.sandbox", "oncurve.verify", "oncurve.report"]
HEAVY = {"torch", "transformers", "peft", "safetensors", "sympy", "ray"}


@pytest.mark.parametrize("module", [name for name in TORCH_FREE if importlib.util.find_spec(name)])
def test_the_torch_free_half_imports_no_torch(module: str):
    source = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
