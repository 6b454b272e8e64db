"""What programs often import: loaded once by the server for all of them.

Each module makes every fork a little dearer; ``random`` and ``threading``, which act on every fork, more than that.
"""

import bisect
import collections
import functools
import heapq
import itertools
import math
import operator
import re
import string
import typing

# The first compilation of a process makes the types of the syntax tree: more work than all else that a program costs.
compile("def f(x):\n    return [x + 1 for _ in (1,)]", "preloaded.py", "exec")

__all__ = ["bisect", "collections", "functools", "heapq", "itertools", "math", "operator", "re", "string"]
__all__ += ["typing"]
