"""Rows that begin alike, merged so that what they have in common is run once.

    row 0   a b c x y          a b c x y          node      0 1 2 3 4 5 6 7
    row 1   a b c z        ►         └ z          token     a b c x y z d w
    row 2   a b d w              └ d w            depth     0 1 2 3 4 3 2 3
                                                  end       8 8 6 5 5 6 8 8

A node is a token after everything above it. Nodes stand depth first, so what is below node j are the nodes up to
``end[j]``, and node i sees node j exactly if j <= i < end[j]: the tokens before it in its own row, nothing else. Its
depth is its position. A causal model therefore computes for each node what it computes in a row of its own, and the
gradient of a shared node is the sum over its rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

Tokens = tuple[int, ...]


@dataclass(slots=True)
class Tree:
    """Merged rows; grows by ``add`` until it is cut off."""

    token_ids: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    """Which rows are merged here."""
    paths: list[tuple[int, ...]] = field(default_factory=list)
    """The nodes of each of them."""

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_chain(self) -> bool:
        """True when there is one row: plain causal attention does."""
        return len(self.members) == 1

    def add(self, member: int, tokens: Tokens, num_shared: int) -> None:
        """Merge a row whose first ``num_shared`` tokens are those of the row added before."""
        shared = self.paths[-1][:num_shared] if self.paths else ()
        self.paths.append((*shared, *range(len(self), len(self) + len(tokens) - num_shared)))
        self.members.append(member)
        self.token_ids += tokens[num_shared:]
        self.depths += range(num_shared, len(tokens))

    def ends(self) -> list[int]:
        """For each node the first one that is not below it."""
        ends, open_nodes = [len(self)] * len(self), list[int]()
        for node, depth in enumerate(self.depths):
            for closed in open_nodes[depth:]:
                ends[closed] = node
            open_nodes[depth:] = [node]
        return ends


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """When a row joins a tree. Its n nodes attend to one another: n * n scores, most of them masked."""

    scores_per_token: float
    """Attention scores that take as long as running one token through the matrices of the model."""
    max_nodes: int
    max_scores: int

    def pays(self, tree: Tree, num_tokens: int, num_shared: int) -> bool:
        """True when the shared tokens are worth more than the scores between strangers, and the tree stays small.

        num_shared * scores_per_token > (n + m - num_shared)^2 - n^2 - m^2, for n nodes and a row of m tokens
        """
        nodes = len(tree) + num_tokens - num_shared
        extra_scores = nodes**2 - len(tree) ** 2 - num_tokens**2
        is_small = nodes <= self.max_nodes and nodes**2 <= self.max_scores
        return is_small and num_shared * self.scores_per_token > extra_scores


def grow(rows: Iterable[tuple[int, Tokens]], sharing: Sharing | None) -> list[Tree]:
    """Merge rows into trees; without ``sharing`` each row is a tree of its own.

    Rows are taken in the order of their tokens, so the rows of a prompt, and prompts that begin alike, are neighbours.

    Args:
        rows: (member, tokens), no row empty.
        sharing: decides whether a row joins the tree of its predecessor.
    """
    trees: list[Tree] = []
    if sharing is not None:
        rows = sorted(rows, key=lambda row: row[1])
    before: Tokens = ()
    for member, tokens in rows:
        num_shared = 0 if sharing is None else _num_common(before, tokens)
        if sharing is None or not num_shared or not sharing.pays(trees[-1], len(tokens), num_shared):
            trees.append(Tree())
            num_shared = 0
        trees[-1].add(member, tokens, num_shared)
        before = tokens
    return trees


def _num_common(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
