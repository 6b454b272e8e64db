"""What programs often import: loaded once by the server for all of them. Each makes every fork a little dearer."""

import bisect
import collections
import functools
import heapq
import itertools
import math
import operator
import random
import re
import string
import typing

__all__ = ["bisect", "collections", "functools", "heapq", "itertools", "math", "operator", "random", "re", "string"]
__all__ += ["typing"]
