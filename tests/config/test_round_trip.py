"""`study_yaml` writes what `load_study` reads, for any study."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from normlab.config.load import load_study, study_yaml
from normlab.config.scalars import show
from normlab.config.schema import (
    Axis,
    ModelSpec,
    OptimSpec,
    Outputs,
    Point,
    RampSpec,
    RunSpec,
    Study,
    TaskSpec,
    Thresholds,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
LABEL = TEXT.filter(str.strip)
RATES = st.floats(1e-12, 1e6)


def dotted(name, values):
    return values.map(lambda vs: Axis(name=name, points=tuple(Point(label=show(v), settings={name: v}) for v in vs)))


def variants(labels):
    points = tuple(
        Point(label=label, settings={"task.a": index, "optim.clip": None}) for index, label in enumerate(labels)
    )
    return Axis(name="variant", points=points)


AXES = st.tuples(
    dotted("optim.lr", st.lists(RATES, min_size=1, max_size=4, unique=True)),
    dotted("model.norm", st.lists(st.sampled_from(["layernorm", "rmsnorm"]), min_size=1, unique=True)),
    dotted("optim.weight_decay", st.lists(st.floats(0, 1), min_size=1, max_size=2, unique_by=show)),
    st.lists(LABEL, min_size=1, max_size=3, unique=True).map(variants),
)
STUDIES = st.builds(
    Study,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True),
    question=TEXT,
    base=st.builds(
        RunSpec,
        task=st.builds(TaskSpec, vocab=st.integers(2, 99), train_size=st.none() | st.integers(1, 99)),
        model=st.builds(
            ModelSpec,
            placement=st.sampled_from(["post", "pre"]),
            init_options=st.fixed_dictionaries({}, optional={"std": RATES}),
            norm_options=st.fixed_dictionaries({}, optional={"statistics": st.sampled_from(["float64", "stream"])}),
            residual_ramp=st.builds(RampSpec, warmup=st.none() | st.integers(1, 99)),
        ),
        optim=st.builds(OptimSpec, eps=st.floats(0, 1), clip=st.none() | RATES, warmup=st.integers(0, 99)),
    ),
    axes=AXES | st.just(()),
    seeds=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=3, unique=True).map(tuple),
    thresholds=st.builds(Thresholds, stalled_margin=st.floats(0, 9)),
    outputs=st.builds(Outputs, reach=st.lists(RATES, max_size=3).map(tuple)),
)


@settings(deadline=None, max_examples=60)
@given(STUDIES)
def test_a_written_study_loads_back_equal(study):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(study_yaml(study), encoding="utf-8")
        assert load_study(path) == study
