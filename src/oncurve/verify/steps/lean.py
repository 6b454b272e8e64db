"""What a Lean proof may not contain, and what Lean says that a proof rests on."""

import re
from collections.abc import Iterable

TEMPLATE = "{preamble}\n\ntheorem {name} {statement} := {proof}\n\n#print axioms {name}\n"

ALLOWED_AXIOMS = ("propext", "Classical.choice", "Quot.sound")
"""The three axioms of Lean's own library."""

FORBIDDEN_WORDS = (
    # gaps and trust in compiled code
    "sorry", "sorryAx", "admit", "native_decide", "native", "nativeDecide", "ofReduceBool", "reduceBool",
    "trustCompiler",
    # new declarations and commands: a proof is a term, and the statement stays the one that is given
    "axiom", "constant", "opaque", "theorem", "lemma", "def", "abbrev", "example", "structure", "inductive", "class",
    "instance", "namespace", "section", "end", "variable", "universe", "open", "export", "import", "prelude", "mutual",
    "deriving", "attribute", "private", "protected", "noncomputable", "partial", "unsafe", "local", "scoped", "module",
    # metaprogramming and options: code that runs while the proof is read
    "macro", "macro_rules", "elab", "elab_rules", "syntax", "declare_syntax_cat", "notation", "infix", "infixl",
    "infixr", "prefix", "postfix", "run_tac", "run_cmd", "run_elab", "run_meta", "by_elab", "initialize",
    "builtin_initialize",
    "set_option", "implemented_by", "extern", "csimp", "Lean", "IO", "unsafeCast", "lcProof", "dbg_trace", "trace",
    "decl_name", "eval", "addDecl",
)  # fmt: skip
"""Refused as whole words wherever they stand, in comments too: telling comments apart is where attacks would aim."""

FORBIDDEN_SIGNS = ("#", "@[", "«", "»")

_WORD = re.compile(r"[^\W\d][\w!?']*")


def forbidden_in(proof: str, words: Iterable[str], signs: Iterable[str] = FORBIDDEN_SIGNS) -> list[str]:
    """What of a proof is refused before any prover reads it: forbidden words, and signs that open commands.

    Args:
        proof: Lean text.
        words: refused as whole words; a dot ends a word, so ``Lean.Elab`` has two.
        signs: refused wherever they stand.
    """
    found = dict.fromkeys(word for word in _WORD.findall(proof) if word in frozenset(words))
    return [*found, *(sign for sign in signs if sign in proof)]


def axioms_of(output: str, name: str) -> list[str] | None:
    """What ``#print axioms`` reported of a theorem; None unless it did so exactly once."""
    pattern = rf"'{re.escape(name)}' (?:does not depend on any axioms|depends on axioms:\s*\[([^\]]*)\])"
    reports = re.findall(pattern, output)
    if len(reports) != 1:
        return None
    return [axiom.strip() for axiom in reports[0].split(",") if axiom.strip()]
