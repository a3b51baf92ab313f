"""Routing in NumPy, one token at a time, from the papers: what models/layers/routing.py is tested against."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Group:
    """How one group of S tokens was routed. gate [S, E]: weight of each expert's answer, 0 where it has none. seat
    [S, E]: the token's place among the expert's seats, -1 where it has none. wanted, dropped: choices that count,
    and those without a seat. chosen [E]: choices that count by expert, kept or not. balance: sum_e (c_e / S) m_e.
    """

    gate: np.ndarray
    seat: np.ndarray
    wanted: int
    dropped: int
    chosen: np.ndarray
    balance: float


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def by_token(logits_SE, real_S, choices, seats, drawn_S=None) -> Group:
    """GShard's algorithm 1 for two choices, and its first half with the plain probability as gate for one (Switch).

    Padding is passed over. A second choice is taken where 2 g2 > drawn (None: always).
    """
    p = softmax(np.asarray(logits_SE, "f8"))
    S, E = p.shape
    group = Group(np.zeros((S, E)), np.full((S, E), -1), 0, 0, np.zeros(E), 0.0)
    count, first = np.zeros(E, int), np.zeros(E)
    order = np.argsort(-p, axis=1, kind="stable")
    tokens = [s for s in range(S) if real_S[s]]

    def seat(s, e, gate):
        group.wanted += 1
        group.chosen[e] += 1
        if count[e] < seats:
            group.gate[s, e], group.seat[s, e] = gate, count[e]
        else:
            group.dropped += 1
        count[e] += 1

    for s in tokens:
        e1, e2 = order[s, 0], order[s, 1] if E > 1 else 0
        first[e1] += 1
        seat(s, e1, p[s, e1] / (p[s, e1] + p[s, e2]) if choices == 2 else p[s, e1])
    for s in tokens if choices == 2 else ():
        e1, e2 = order[s, :2]
        g2 = p[s, e2] / (p[s, e1] + p[s, e2])
        if drawn_S is None or 2 * g2 > drawn_S[s]:
            seat(s, e2, g2)
    if tokens:
        group.balance = float(np.sum(first / len(tokens) * p[tokens].mean(0)))
    return group


def by_expert(logits_SE, real_S, seats) -> np.ndarray:
    """Gates [S, E] where each expert takes its `seats` best real tokens (Zhou et al. 2022)."""
    p = softmax(np.asarray(logits_SE, "f8"))
    gate = np.zeros_like(p)
    for e in range(p.shape[1]):
        best = sorted((s for s in range(len(p)) if real_S[s]), key=lambda s: -p[s, e])
        for s in best[:seats]:
            gate[s, e] = p[s, e]
    return gate
