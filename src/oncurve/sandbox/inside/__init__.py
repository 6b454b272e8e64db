"""What runs inside the sandbox. Standard library only, and nothing of the package is in reach there.

    server      forks one process for each program and says how it ended; holds neither programs nor data
    confine     what that process gives up before it runs anything: namespaces, files, rights, limits
    host        a program under test that answers calls
    script      a program under test with standard input and output; a compiler; a compiled program
    tester      a test text, in another process than the program it tests
    proxies     what the test text sees of the program's objects
    values      plain data as JSON that keeps Python's types
    frames      messages on a stream

The directory is mounted read-only and its modules import each other relatively, so that both sides share ``values``
and ``frames``.
"""
