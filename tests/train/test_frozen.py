"""Several objectives on the rollout of one recorded step: the weights, the numbers, and what is refused."""

import json
import shutil
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest
import torch

from oncurve.algo import ObjectiveSettings
from oncurve.config import load_config
from oncurve.learner import load_state
from oncurve.report import read_evaluations, read_metrics, read_rollouts
from oncurve.report.comparison import FrozenComparison
from oncurve.train import Session, train
from oncurve.train.candidates import read_candidates
from oncurve.train.frozen import compare_frozen
from oncurve.train.gradients import Gradients
from oncurve.train.stored import StoredRun
from oncurve.types import ConfigError, NumericsError, RunError
from tests.train.conftest import SMALL

WORDS = (*SMALL, "--rollout.num_prompts", "6", "--learner.lr", "1e-3", "--keep_checkpoints", "9")


def make_run(path: Path, *words: str) -> Path:
    with Session.create(load_config(None, [*WORDS, "--run_dir", str(path), *words])) as session:
        list(train(session))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Iterator[Path]:
    """Four steps of 6 x 4 completions, checkpoints after 2 and 4."""
    before = torch.get_num_threads()
    yield make_run(tmp_path_factory.mktemp("frozen") / "run")
    torch.set_num_threads(before)


def compare(run: Path, step: int, objectives: str, *, num_tasks: int = 0) -> FrozenComparison:
    return compare_frozen(run, step, objectives, num_tasks=num_tasks, note=lambda _: None)


def bytes_of(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): blake2b(path.read_bytes()).hexdigest() for path in files}


# the weights before a step


def assert_replays(run: Path, copy: Path, step: int) -> None:
    """Without its checkpoint, the weights of a step come out of repeated updates to the bit."""
    kept = load_state(run / "checkpoints" / f"step_{step:06d}")["learner"]
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / f"step_{step:06d}")
    stored, told = StoredRun(copy), []
    weights = stored.weights_before(step, stored.policy(), None, note=told.append)
    assert len(told) == 1
    assert f"{step - stored.replay_from(step)[0]} updates are repeated" in told[0]
    assert weights.masters.keys() == kept["optimizer"]["masters"].keys()
    for name, master in kept["optimizer"]["masters"].items():
        assert torch.equal(weights.masters[name], master), name
    assert (weights.num_updates, weights.num_steps) == (kept["num_updates"], kept["num_steps"])
    assert weights.coefficients == kept["coefficients"]


def test_repeated_updates_give_the_weights_of_the_checkpoint_to_the_bit(run: Path, tmp_path: Path) -> None:
    assert_replays(run, tmp_path / "from_the_start", 2)
    assert_replays(run, tmp_path / "from_a_checkpoint", 4)
    assert StoredRun(tmp_path / "from_a_checkpoint").replay_from(4)[0] == 2


def test_updates_on_resampled_groups_are_repeated_without_what_was_set_aside(tmp_path: Path) -> None:
    words = ("--objective.zero_variance", "resample", "--rollout.num_prompts", "3", "--steps", "2")
    run = make_run(tmp_path / "run", *words)
    groups, aside = StoredRun(run).groups(0)
    assert len(groups) <= 3
    assert len(aside) > 0
    assert sum(len(group.completions) for group in [*groups, *aside]) == len(list(read_rollouts(run, 0)))
    assert_replays(run, tmp_path / "copy", 2)
    assert compare(run, 0, "run").num_set_aside == len(aside)


def test_the_groups_are_those_that_were_recorded(run: Path) -> None:
    groups, aside = StoredRun(run).groups(1)
    assert [len(group.completions) for group in groups] == [4] * 6
    assert aside == []
    records = iter(read_rollouts(run, 1))
    for group in groups:
        for completion, verdict in zip(group.completions, group.verdicts, strict=True):
            record = next(records)
            assert (completion.task_id, completion.index) == (record.task_id, record.index)
            assert (completion.prompt_ids, completion.token_ids) == (record.prompt_ids, record.token_ids)
            assert completion.old_logprobs == record.old_logprobs
            assert completion.finish_reason is record.finish_reason
            assert (verdict.status, verdict.reward, verdict.components) == (
                record.status,
                record.reward,
                record.components,
            )


def test_weights_that_did_not_sample_the_rollout_are_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    shutil.rmtree(checkpoints / "step_000002")
    (checkpoints / "step_000004").rename(checkpoints / "step_000002")
    with pytest.raises(NumericsError, match="log-probs recorded at sampling differ from the learner's"):
        compare(tmp_path / "run", 2, "run")


# the numbers


def test_the_runs_own_objective_gives_what_the_run_recorded(run: Path) -> None:
    for row in read_metrics(run):
        found = compare(run, row["step"], "run")
        (own,) = found.objectives
        assert own.loss == row["loss/total"]
        assert own.grad_norm == pytest.approx(row["grad/norm"], rel=1e-5)
        assert found.gap == pytest.approx(row["gap/mean_abs"])
        assert own.shares["equal_group"] > 0 or row["groups/zero_variance"] == 0
        assert own.num_groups == round(6 * (1 - row["groups/zero_variance"]))
        assert sum(own.shares.values()) == pytest.approx(1)


def test_identical_objectives_agree_and_different_ones_differ(run: Path) -> None:
    found = compare(run, 2, "grpo,dr_grpo,grpo")
    first, other, twin = found.objectives
    assert found.cosines[0][2] == found.cosines[1][1] == 1.0
    assert (first.loss, first.grad_norm, first.shares) == (twin.loss, twin.grad_norm, twin.shares)
    cosine = found.cosines[0][1]
    assert cosine is not None
    assert 0 < cosine < 0.9999
    assert cosine == found.cosines[1][0]
    assert first.kl is not None
    assert first.loss == pytest.approx(first.policy + 0.04 * first.kl)
    assert other.kl is None
    assert other.formula != first.formula


def test_the_reference_is_the_starting_model(run: Path) -> None:
    """At the first step the policy is the reference, and every estimate of the KL is 0; later it is not."""
    kl_at = [compare(run, step, "grpo").objectives[0].kl for step in (0, 2)]
    assert kl_at[0] == pytest.approx(0, abs=1e-9)
    assert kl_at[1] is not None
    assert kl_at[1] > 1e-6


def test_one_step_starts_from_the_same_weights_for_every_objective(run: Path) -> None:
    recorded = {row["step"]: row for row in read_evaluations(run)}
    kept = bytes_of(run)
    found = compare(run, 0, "dr_grpo,run,dr_grpo", num_tasks=16)
    assert found.before is not None
    assert (found.before.num_tasks, found.before.greedy) == (16, recorded[0]["greedy"])
    first, own, twin = (one.effect for one in found.objectives)
    assert first is not None
    assert own is not None
    assert twin is not None
    assert first.against_first is None
    assert own.change.difference == pytest.approx(own.greedy - found.before.greedy)
    assert twin.against_first is not None
    assert (twin.against_first.difference, twin.against_first.p) == (0.0, 1.0)
    losses = [(one.loss, one.grad_norm) for one in found.objectives]
    assert losses[0] == losses[2] != losses[1]  # whatever step was taken in between
    assert bytes_of(run) == kept


def test_a_step_is_one_at_the_learning_rate_of_the_run(run: Path, tmp_path: Path) -> None:
    # warm-up over 5 steps to 1e-3: the third step has 3/5 of it
    assert compare(run, 2, "run").lr == pytest.approx(6e-4)
    shutil.copytree(run, tmp_path / "run")
    config = (run / "config.toml").read_text()
    (tmp_path / "run" / "config.toml").write_text(config.replace("lr = 0.001\n", "lr = 0.9\n"))
    found = compare(tmp_path / "run", 2, "run", num_tasks=16)
    (own,) = found.objectives
    assert own.effect is not None
    assert own.effect.greedy == 0.0  # at that rate one step destroys the policy


def test_an_objective_that_learns_nothing_of_the_rollout_is_said_to(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("def f(prompts, completions, **c):\n    return [0.0] * len(completions)")
    component = ("--reward.components.correct.verifier", f'"{tmp_path}/reward.py:f"')
    run = make_run(tmp_path / "run", *component, "--steps", "1")
    found = compare(run, 0, 'run,{preset = "ngrpo"}', num_tasks=2)
    own, other = found.objectives
    assert (own.loss, own.grad_norm, own.num_groups) == (0.0, 0.0, 0)
    assert own.shares["equal_group"] == 1.0
    assert "Nothing of this rollout" in own.notes[-1]
    assert own.effect is not None
    assert own.effect.change.difference == 0.0
    assert other.shares["nonzero"] > 0
    assert found.cosines == ((None, None), (None, 1.0))


def test_gradients_in_files_have_the_angles_of_gradients_in_memory(tmp_path: Path) -> None:
    shapes = {"a": torch.Size([1, 2]), "b": torch.Size([1])}
    for memory_bytes in (0, 10**9):
        kept = Gradients(shapes, torch.float32, count=4, folder=tmp_path, memory_bytes=memory_bytes)
        kept.add({"a": torch.tensor([[3.0, 4.0]])})  # b has none: 0
        kept.add({"b": torch.tensor([12.0]), "a": torch.tensor([[4.0, 3.0]])})
        kept.add({"a": torch.tensor([[-3.0, -4.0]])})
        kept.add({})
        assert kept.norms() == [5.0, 13.0, 5.0, 0.0]
        cosines = kept.cosines()
        assert cosines[0] == [1.0, pytest.approx(24 / 65), -1.0, None]  # (12 + 12) / (5 * 13)
        assert cosines[3] == [None] * 4
    assert len(list(tmp_path.iterdir())) == 4


# what is refused


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ("run,drgrpo", r"there is no objective 'drgrpo'. Did you mean dr_grpo\?"),
        ("", "no objective is named"),
        ("ppo", "objective ppo needs a critic"),
        ('{preset = "grpo", clip_hi = 0.3}', r"unknown setting clip_hi. Did you mean clip_high\?"),
        ('{preset = "grpo", clip_low = 3}', "clip_low: Input should be less than or equal to 1"),
        ('{loss = "luspo"}', "loss luspo with aggregation"),
        ("{preset = grpo}", "is not a TOML table"),
        ("nowhere.toml", r"there is no config file nowhere\.toml"),
        ("maxrl", "objective maxrl: "),  # rewards of 1.1: right, and well formed
        ('{advantage = {estimator = "pass_at_k", k = 5}}', "objective .*k"),  # of groups of 4
    ],
)
def test_an_objective_that_cannot_be_had_is_named_before_anything_is_computed(
    run: Path, objectives: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        compare(run, 0, objectives)


def test_a_correction_that_would_count_twice_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "--learner.old_logprobs", "sampler", "--steps", "1")
    with pytest.raises(ConfigError, match=r'objective trl: learner\.old_logprobs = "sampler"'):
        compare(run, 0, "trl")


def test_a_step_that_is_not_recorded_says_which_are(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no rollouts of step 4\. Recorded: 0 to 3\."):
        compare(run, 4, "run")
    with pytest.raises(RunError, match=r"config\.toml"):
        compare(tmp_path, 0, "run")


def test_one_task_is_too_few_for_a_paired_test(run: Path) -> None:
    with pytest.raises(ConfigError, match="2 held-out tasks or more"):
        compare(run, 0, "run", num_tasks=1)


def test_a_run_that_learned_from_given_data_has_no_rollouts(run: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('method = "sft"\n')
    with pytest.raises(RunError, match='method "sft"'):
        compare(tmp_path, 0, "run")


def test_a_run_that_only_collects_has_its_starting_model_at_every_step(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "--method", "collect", "--steps", "2", "--checkpoint_every", "1")
    found = compare(run, 1, "dr_grpo")
    assert found.weights == "the starting model"
    assert found.gap is not None
    assert found.gap < 1e-5


def test_a_critics_updates_are_not_repeated(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    config = (run / "config.toml").read_text()
    changed = config.replace('estimator = "group_zscore"', 'estimator = "gae"').replace('"skip"', '"keep"')
    changed = changed.replace("warmup_rollouts = 5", "warmup_rollouts = 0")
    (tmp_path / "run" / "config.toml").write_text(changed)
    stored = StoredRun(tmp_path / "run")
    assert stored.replay_from(2)[0] == 2
    with pytest.raises(RunError, match=r"need the critic of that time\. Steps with a checkpoint: 2, 4"):
        stored.replay_from(3)
    assert compare(tmp_path / "run", 2, "grpo").objectives[0].grad_norm > 0


# the words


def test_candidates_are_presets_files_inline_tables_and_the_runs_own(tmp_path: Path) -> None:
    own = ObjectiveSettings(clip_low=0.11)
    (tmp_path / "my.toml").write_text("[objective]\nclip_high = 0.7\n")
    text = f' run , dapo,{tmp_path}/my.toml,{{preset = "grpo", advantage = {{std_eps = 0.5, ddof = 0}}}},'
    found = read_candidates(text, own)
    assert [one.name for one in found[:2]] == ["run", "dapo"]
    assert [one.is_own for one in found] == [True, False, False, False]
    assert [one.objective.clip_high for one in found] == [0.2, 0.28, 0.7, 0.2]
    assert found[0].objective == own
    assert (found[3].objective.kl_coef, found[3].objective.advantage.std_eps) == (0.04, 0.5)


def test_a_file_without_an_objective_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("seed = 1\n")
    with pytest.raises(ConfigError, match=r"has no \[objective\] table"):
        read_candidates(str(path), ObjectiveSettings())


def test_the_comparison_is_plain_data(run: Path) -> None:
    found = compare(run, 1, "run,gspo")
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert data["step"] == 1
    assert [one["name"] for one in data["objectives"]] == ["run", "gspo"]
    assert data["num_tokens"] == sum(len(one.token_ids) for one in read_rollouts(run, 1))
