"""verl's two places for a KL to the reference, read as the one that a run has here.

Source: verl 0.9.1, ``trainer/ppo/core_algos.py``, ``kl_penalty`` and the controllers.
"""

from oncurve.config.migrate.ledger import Ledger

ALGORITHM, ACTOR = "algorithm.", "actor_rollout_ref.actor."

_KL = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}


def read_kl(book: Ledger) -> None:
    """Estimator, place and coefficient; ``objective.zero_variance`` and the advantage are read already."""
    in_loss, in_reward = f"{ACTOR}use_kl_loss", f"{ALGORITHM}use_kl_in_reward"
    loss_keys = (f"{ACTOR}kl_loss_coef", f"{ACTOR}kl_loss_type")
    control = f"{ALGORITHM}kl_ctrl."
    reward_keys = (f"{ALGORITHM}kl_penalty", *(control + name for name in ("type", "kl_coef", "horizon", "target_kl")))
    book.settings["objective.kl_coef"] = 0.0
    if book.flag(in_loss):
        _kl_in_loss(book, in_loss, *loss_keys)
    else:
        for key in (in_loss, *loss_keys):
            book.same(key, "There is no KL in the loss.")
    if book.flag(in_reward) and not book.flag(in_loss):
        _kl_in_reward(book, in_reward, control)
        return
    if book.flag(in_reward):
        book.absent(in_reward, "The KL is in the reward as well there; here in one place, the loss.")
    for key in (in_reward, *reward_keys):
        book.same(key, "There is no KL in the reward.")


def _kl_in_loss(book: Ledger, switch: str, coef: str, kind: str) -> None:
    theirs = str(book.value(kind))
    base = _KL.get(theirs.removesuffix("+"))
    if base is None:
        book.absent(kind, f"The estimator {theirs} has no counterpart; k3 is written.")
        ours = "k3"
    else:
        ours = "k2" if theirs.endswith("+") else base
    book.settings["objective.kl_placement"] = "loss"
    if ours == "k1":
        book.absent(
            kind, "Its expected gradient is 0 and only adds noise there; here it is refused, and no KL is written."
        )
        book.absent(coef, "It weighs a term without expected gradient there; here kl_coef is 0, and the KL is watched.")
        book.same(switch, "The KL is watched.")
        return
    note = f"{theirs} has the gradient of k2; only the value shown differs." if theirs.endswith("+") else ""
    if base is not None:
        book.write("objective.kl_estimator", ours, kind, note=note)
    else:
        book.settings["objective.kl_estimator"] = ours
    book.write("objective.kl_coef", book.number(coef), coef, switch)


def _kl_in_reward(book: Ledger, switch: str, control: str) -> None:
    penalty = f"{ALGORITHM}kl_penalty"
    theirs = str(book.value(penalty))
    ours = _KL.get(theirs.removesuffix("+"))
    estimator = book.settings["objective.advantage.estimator"]
    if estimator == "gdpo":
        book.absent(switch, "The KL is subtracted from the reward there; here gdpo takes none.")
        for key in (penalty, *(control + name for name in ("type", "kl_coef", "horizon", "target_kl"))):
            book.same(key, "No KL is taken.")
        return
    if ours is None:
        book.absent(penalty, f"The estimator {theirs} has no counterpart; k1 is written.")
        book.settings["objective.kl_estimator"] = "k1"
    else:
        book.write("objective.kl_estimator", ours, penalty)
    book.write("objective.kl_placement", "reward", switch)
    book.write("objective.kl_coef", book.number(f"{control}kl_coef"), f"{control}kl_coef")
    if estimator in ("group_zscore", "top_gap") and book.settings["objective.zero_variance"] == "keep":
        book.settings["objective.zero_variance"] = "skip"
        book.remarks["objective.zero_variance"] = "see algorithm.use_kl_in_reward"
        book.absent(
            switch, "In all-equal groups the KL is blown up to full size by the std there; here they are skipped."
        )
    _adaptive(book, control)


def _adaptive(book: Ledger, control: str) -> None:
    is_adaptive = book.choice(f"{control}type", ("fixed", "adaptive")) == "adaptive"
    if not is_adaptive or book.number(f"{control}kl_coef") == 0:
        for name in ("type", "horizon", "target_kl"):
            book.same(control + name, "The coefficient stays fixed.")
        return
    book.write(
        "objective.kl_adaptive.target", book.number(f"{control}target_kl"), f"{control}target_kl", f"{control}type"
    )
    book.write("objective.kl_adaptive.horizon", book.whole(f"{control}horizon"), f"{control}horizon")
