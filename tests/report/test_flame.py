"""The breakdown of a step: phases in the step, parts in the phases, and nothing counted twice."""

from hypothesis import given
from hypothesis import strategies as st

from oncurve.report.flame import STEP, flame

ROWS = [
    {
        "step": 0,
        "seconds/evaluation": 4.0,
        "seconds/rollout": 1.0,
        "seconds/rollout/decode": 0.75,
        "seconds/verify": 0.25,
        "seconds/verify_busy": 1.25,
        "seconds/update": 2.0,
        "seconds/update/forward": 0.5,
        "seconds/update/backward": 1.0,
        "tokens_per_second/update": 100.0,
    },
    {
        "step": 1,
        "seconds/rollout": 3.0,
        "seconds/rollout/decode": 2.25,
        "seconds/verify": 0.25,
        "seconds/verify_busy": 0.75,
        "seconds/update": 4.0,
        "seconds/update/forward": 1.5,
        "seconds/update/backward": 2.0,
        "seconds/checkpoint": 1.0,
    },
]


def test_a_mean_step_holds_phases_and_their_parts():
    found = flame(ROWS)
    assert found is not None
    seconds = {block.name: (block.parent, block.seconds) for block in found.blocks}
    assert seconds == {
        "step": ("", 2.0 + 0.25 + 3.0 + 2.0 + 0.5),
        "rollout": (STEP, 2.0),  # (1 + 3) / 2
        "rollout/decode": ("rollout", 1.5),
        "verify": (STEP, 0.25),
        "update": (STEP, 3.0),
        "update/forward": ("update", 1.0),
        "update/backward": ("update", 1.5),
        "evaluation": (STEP, 2.0),  # one examination of 4 s over two steps
        "checkpoint": (STEP, 0.5),
    }
    assert found.hidden_verify == 0.75  # (1.25 + 0.75) / 2 - 0.25
    assert found.num_steps == 2


def test_what_came_after_the_last_step_is_spread_over_all_of_them():
    # 4 s before the first step and 3 s after the last, over two steps; the checkpoint 1 s and 0.5 s.
    found = flame(ROWS, {"seconds/evaluation": 3.0, "seconds/checkpoint": 0.5})
    assert found is not None
    seconds = {block.name: block.seconds for block in found.blocks}
    assert (seconds["evaluation"], seconds["checkpoint"], seconds["update"]) == (3.5, 0.75, 3.0)
    assert (seconds["step"], found.num_steps) == (2.0 + 0.25 + 3.0 + 3.5 + 0.75, 2)
    assert flame([], {"seconds/evaluation": 3.0}) is None
    only_after = flame([{"step": 0, "seconds/update": 2.0}], {"seconds/checkpoint": 1.0})
    assert only_after is not None
    assert only_after.sentences() == ["update 2 s, 66.7 %", "checkpoint 1 s, 33.3 %"]


def test_it_is_said_in_words_the_longest_first():
    found = flame(ROWS)
    assert found is not None
    assert found.sentences() == [
        "update 3 s, 38.7 % (backward 1.5 s, forward 1 s)",  # 3 / 7.75
        "rollout 2 s, 25.8 % (decode 1.5 s)",
        "evaluation 2 s, 25.8 %",
        "checkpoint 500 ms, 6.5 %",
        "verify 250 ms, 3.2 %",
    ]


def test_without_seconds_there_is_nothing_to_draw():
    assert flame([]) is None
    assert flame([{"step": 0, "reward/mean": 1.0}]) is None
    assert flame([{"step": 0, "seconds/update": 0.0}]) is None


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                [f"seconds/{name}" for name in ("rollout", "update", "update/a", "update/b", "verify/c", "record")]
            ),
            st.floats(0, 1e3),
            min_size=1,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_block_is_longer_than_its_parent(rows):
    # What lies within must fit, or the drawing leaves everything out.
    found = flame([{"step": number, **row} for number, row in enumerate(rows)])
    for parent in found.blocks if found else ():
        inside = sum(block.seconds for block in found.blocks if block.parent == parent.name)
        assert inside <= parent.seconds * (1 + 1e-9)
        assert parent.seconds > 0
    (trace,) = found.figure()["data"] if found else ({"ids": [], "values": [], "parents": []},)
    for name, width in zip(trace["ids"], trace["values"], strict=True):
        assert width >= sum(w for w, parent in zip(trace["values"], trace["parents"], strict=True) if parent == name)


def test_the_figure_names_every_block_and_its_parent():
    found = flame(ROWS)
    assert found is not None
    (trace,) = found.figure()["data"]
    assert trace["type"] == "icicle"
    assert trace["ids"] == [block.name for block in found.blocks]
    assert trace["labels"][:3] == ["step", "rollout", "decode"]
    assert trace["parents"][:3] == ["", "step", "rollout"]
    assert trace["values"][:3] == [7_750_000, 2_000_000, 1_500_000]
    colours = dict(zip(trace["ids"], trace["marker"]["colors"], strict=True))
    assert colours["rollout/decode"] == colours["rollout"] + "-fill"
