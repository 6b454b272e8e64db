"""What runs in the process of the environments: standard library only, loaded by path.

An environment is a class with ``reset``, ``call`` and ``state``, made anew for every episode. ``serve`` carries
calls out on them; nothing of one is left when it returns.
"""
