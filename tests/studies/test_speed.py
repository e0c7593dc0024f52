"""The speed study: what is timed is right, and what is said of times follows from them. No time is asserted."""

import json
from contextlib import nullcontext

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from normlab.analysis.speed_text import interval_text, share_text, winner
from normlab.cli import main
from normlab.config.schema import ModelSpec, RunSpec, TaskSpec, TrainSpec
from normlab.measures import read_measure
from normlab.published import __file__ as published_file
from normlab.studies import speed, speed_norms, speed_shapes, speed_values
from normlab.studies.flops import NORM_BACKWARD, NORM_FORWARD, norm_flops, norm_share, product_flops, step_flops
from normlab.studies.speed_clock import cpu_times, saved, summary, times
from normlab.studies.speed_model import specs, step_call
from normlab.studies.speed_norms import ALL, HANDWRITTEN, LN, RMS, Absent, Cell
from normlab.studies.speed_shapes import AtShape, Pace, Shape, Subject, Timed, measure_shape, rounds_for, visit
from normlab.train.stack import Stack

TINY = Shape(2, 3, 8, (21, 18))
PACE = Pace(rounds=2, visit=1e-4, patience=1.0)


@pytest.fixture
def no_compiler(monkeypatch):
    """A machine without a compiler: only what needs none comes out of torch.compile."""

    def refuse(module):
        def call(x):
            raise RuntimeError("no C++\n  compiler Set TORCHDYNAMO_VERBOSE=1")

        return module if isinstance(module, HANDWRITTEN["identity"]) else call

    monkeypatch.setattr(speed_norms, "compiled", refuse)


# What is timed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "identity"])
def test_handwritten_norms_are_torchs_forward_and_backward(norm):
    ours, torchs = HANDWRITTEN[norm](8).double(), speed_norms.native(norm, 8).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(2, 3, 8, dtype=torch.float64)
    with torch.no_grad():
        for own, other in zip(ours.parameters(), torchs.parameters(), strict=True):
            other.copy_(own.normal_())
    torch.testing.assert_close(ours(x), torchs(x))
    for direction in ("backward", "both"):
        calls = [speed_norms.prepare(module, direction, x, grad) for module in (ours, torchs)]
        torch.testing.assert_close(calls[0](), calls[1]())


def test_dyt_is_its_formula():
    module = HANDWRITTEN["dyt"](4)
    with torch.no_grad():
        module.gain.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        module.bias.fill_(0.25)
    x = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    wanted = module.gain * torch.tanh(0.5 * x) + 0.25
    torch.testing.assert_close(module(x), wanted)
    with pytest.raises(Absent, match="torch.nn has no dyt"):
        speed_norms.build(Cell("native", "dyt", "forward"), 4, "cpu")


def test_backward_can_be_called_again_and_covers_every_parameter():
    x = torch.randn(2, 3, 8, requires_grad=True)
    call = speed_norms.prepare(HANDWRITTEN["layernorm"](8), "backward", x, torch.ones(2, 3, 8))
    first, second = call(), call()
    assert [g.shape for g in first] == [x.shape, (8,), (8,)]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_an_error_against_the_formula_is_seen():
    x = torch.randn(1, 3, 8)
    assert speed_norms.error_against_formula(HANDWRITTEN["rmsnorm"](8), "rmsnorm", x) < 1e-5
    assert speed_norms.error_against_formula(HANDWRITTEN["identity"](8), "rmsnorm", x) > 1e-2


# Rounds -------------------------------------------------------------------------------------------------------------


def test_every_cell_of_a_shape_is_timed_or_says_why(no_compiler):
    at = measure_shape(TINY, ALL, (LN, RMS), PACE, "cpu")
    assert set(at.cells) | set(at.absent) == set(ALL) and not set(at.cells) & set(at.absent)
    assert {cell.norm for cell in at.cells if cell.implementation == "compiled"} == {"identity"}
    whys = {cell.implementation: why for cell, why in at.absent.items()}
    assert whys == {
        "native": "torch.nn has no dyt",
        "compiled": "torch.compile failed: RuntimeError: no C++ compiler",
    }
    assert all(len(timed.by_round) == 2 and min(timed.all) > 0 for timed in at.cells.values())
    assert all(timed.error < 1e-5 for timed in at.cells.values())
    assert set(at.copies) == {"copy", "clone"}


def test_a_fault_of_ours_is_not_taken_for_a_missing_compiler(monkeypatch):
    monkeypatch.setitem(HANDWRITTEN, "rmsnorm", torch.nn.Bilinear)
    with pytest.raises(TypeError):
        measure_shape(TINY, (RMS,), (), PACE, "cpu")


def test_a_shape_without_room_is_not_tried(monkeypatch):
    monkeypatch.setattr(speed_shapes, "free_memory", lambda device: 10**6)
    at = measure_shape(Shape(1, 1024, 1024), (LN, RMS), (), PACE, "cpu")
    assert not at.cells and set(at.absent) == {LN, RMS}
    assert at.absent[LN] == "needs 0.1 GB of memory, 0.0 GB are free"


def test_rounds_are_interleaved_and_every_other_one_goes_backwards(monkeypatch):
    seen = []
    monkeypatch.setattr(speed_shapes, "times", lambda call, seconds, device: [seen.append(call) or 1.0])
    subjects = [Subject(lambda name=name: name, rounds) for name, rounds in (("a", 3), ("b", 3), ("c", 1))]
    visit(subjects, Pace(3, 0.01, 1.0), "cpu")
    assert seen == ["a", "b", "c", "b", "a", "a", "b"]
    assert [len(subject.timed.by_round) for subject in subjects] == [3, 3, 1]


@pytest.mark.parametrize(
    ("seconds", "headline", "rounds"),
    [
        (1e-6, False, 9),
        (1.0, False, 4),
        (3.0, False, 3),
        (3.0, True, 6),
        (1.0, True, 9),
        (15.0, True, 1),
        (60.0, False, 1),
    ],
)
def test_slow_cells_get_fewer_rounds(seconds, headline, rounds):
    assert rounds_for(seconds, headline, Pace(9, 0.03, 4.0)) == rounds


def test_the_timer_runs_the_call():
    count = 0

    def call():
        nonlocal count
        count += 1

    found = cpu_times(call, 1e-4)
    assert count > 1 and found and all(0 < t < 1 for t in found)


def test_events_time_blocks_that_can_be_read(monkeypatch):
    """The device's clock by a stand-in that ticks 20 us a call: blocks grow tenfold until they can be read."""
    clock, counts = 0, []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = clock

        def synchronize(self):
            counts.append(clock)

        def elapsed_time(self, end):
            return (end.at - self.at) * 0.02

    def call():
        nonlocal clock
        clock += 1

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    found = times(call, 0.02, "cuda:0")
    assert found == pytest.approx([2e-5] * len(found))
    assert counts[:4] == [1, 11, 111, 211] and len(counts) == len(found) + 2
    assert counts[-1] * 2e-5 == pytest.approx(0.02, abs=2e-3)


# What is said of times ----------------------------------------------------------------------------------------------


def test_a_summary_has_percentiles_and_n():
    assert summary(range(11)) == {"median": 5.0, "low": 2.0, "high": 8.0, "n": 11}


def test_savings_are_paired_by_round():
    # Drift doubles both in the second round: the share saved does not move.
    assert saved([8.0, 16.0, 8.0], [10.0, 20.0, 10.0]) == {
        "median": pytest.approx(0.2),
        "low": pytest.approx(0.2),
        "high": pytest.approx(0.2),
        "n": 3,
    }
    assert saved([15.0], [10.0])["median"] == -0.5


def timed(low, median, high, n=3):
    return {"low_us": low, "median_us": median, "high_us": high, "n": n}


def test_no_winner_where_intervals_overlap():
    assert winner({"a": timed(1, 2, 3), "b": timed(4, 5, 6)}) == "a"
    assert winner({"a": timed(4, 5, 6), "b": timed(1, 2, 3)}) == "b"
    assert winner({"a": timed(1, 2, 4), "b": timed(3, 5, 6)}) is None
    assert winner({"a": timed(1, 2, 3), "b": timed(3, 5, 6)}) is None  # they touch
    assert winner({"a": timed(1, 2, 3), "b": timed(4, 5, 6), "c": timed(2.5, 7, 8)}) is None
    assert winner({"a": timed(1, 2, 3)}) is None and winner({}) is None
    assert winner({"a": timed(2, 2, 2, n=1), "b": timed(4, 5, 6)}) is None  # one value is no interval


def test_texts_of_intervals():
    assert interval_text(timed(60.24, 63.1, 1820.4)) == "63.1 [60.2, 1,820], n 3"
    assert interval_text(timed(0.0412, 0.05, 1.234)) == "0.05 [0.04, 1.23], n 3"
    assert share_text({"median": -1.5, "low": -1.6, "high": 0.14}) == "−150 % [−160, 14]"
    assert share_text({"median": -0.004, "low": -0.02, "high": 0.001}) == "0 % [−2, 0]"
    assert share_text(None) == "–"


def at_shape(shape, **rounds):
    cells = {"ln": LN, "rms": RMS, "compiled": RMS._replace(implementation="compiled")}
    return AtShape(shape, {cells[name]: Timed([[t * 1e-6] for t in ts]) for name, ts in rounds.items()}, {}, COPY)


COPY = {"copy": Timed([[1e-6]])}


def test_values_of_hand_made_times():
    found = [at_shape(TINY, ln=[10, 20, 10], rms=[8, 16, 9]), at_shape(Shape(1, 1, 4, (9, 8)), ln=[10], rms=[5])]
    values = speed_values.shape_values(found, "1x1x4")
    assert values["norm-speed"]["ratio"].keys() == {"2x3x8"}
    ratio = values["norm-speed"]["ratio"]["2x3x8"]
    assert (ratio["median"], ratio["n"]) == (pytest.approx(0.2), 3)
    assert values["rms-speed-single"]["faster_by"]["median"] == pytest.approx(0.5)
    assert values["rms-speed-single"]["layernorm_us"]["median"] == pytest.approx(10)
    cell = values["norm-speed"]["cells"][0]
    assert (cell["median_us"], cell["n"], cell["rounds"]) == (pytest.approx(10), 3, 3)
    assert cell["gbps"] == pytest.approx(2 * 4 * 48 / 10e-6 / 1e9)
    assert values["norm-speed"]["copy_gbps"] == pytest.approx(2 * 4 * 48 / 1e-6 / 1e9)
    needed = values["norm-speed"]["needed_gbps"]["2x3x8"]
    assert needed == {
        "layernorm": pytest.approx(2 * 4 * 48 / 21e-6 / 1e9),
        "rmsnorm": pytest.approx(2 * 4 * 48 / 18e-6 / 1e9),
    }


def test_a_round_that_only_one_saw_makes_no_ratio():
    values = speed_values.shape_values([at_shape(TINY, ln=[10, 20, 10], rms=[8])], "none")
    assert values["norm-speed"]["ratio"]["2x3x8"]["n"] == 1
    assert values["rms-speed-single"] == {}


def test_the_largest_printed_time_needs_more_than_half_a_terabyte_a_second():
    assert speed_values.needed_gbps(speed.SHAPES[-1])["layernorm"] == pytest.approx(590, abs=1)


def test_the_printed_times_are_the_ledgers():
    from pathlib import Path

    import yaml

    ledger = yaml.safe_load((Path(published_file).parent / "article.yaml").read_text(encoding="utf-8"))
    entries = {entry["id"]: entry for entry in ledger["entries"]}
    shares = {shape.name: 1 - shape.printed[1] / shape.printed[0] for shape in speed.SHAPES}
    assert shares == {name: pytest.approx(v, abs=0.006) for name, v in entries["norm-speed"]["published"].items()}
    single = entries["rms-speed-single"]["published"]["faster_by"]
    assert 1 - speed.SINGLE.printed[1] / speed.SINGLE.printed[0] == pytest.approx(single)


# Operations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixer", ["mean", "linear"])
@pytest.mark.parametrize("norm", ["layernorm", "none"])
def test_matrix_products_are_counted_as_torch_counts_them(mixer, norm):
    model = ModelSpec(depth=2, width=8, hidden=24, mixer=mixer, norm=norm)
    spec = RunSpec(model=model, task=TaskSpec(vocab=16, length=5), train=TrainSpec(batch=3))
    stack, tokens = Stack([spec]), torch.zeros(1, 3, 6, dtype=torch.int64)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        stack.losses(tokens)
    with FlopCounterMode(display=False) as both:
        stack.gradients(tokens)
    ours = product_flops(spec)
    assert ours["forward"] == forward.get_total_flops()
    assert ours["forward"] + ours["backward"] == both.get_total_flops()


def test_operations_of_the_norms():
    spec = RunSpec(model=ModelSpec(depth=3, norm="rmsnorm"))
    elements = 32 * 16 * 64
    assert norm_flops(spec) == elements * (6 * (4 + 8) + (7 + 11))  # six RMSNorms, and the final LayerNorm
    assert norm_flops(specs()["none"]) == 0
    assert NORM_FORWARD.keys() == NORM_BACKWARD.keys()
    flops = step_flops(spec, 1000)
    assert norm_share(flops) == flops["norms"] / (flops["products"] + flops["norms"] + flops["other"])


def test_a_timed_step_trains():
    stack, call = step_call(specs()["rmsnorm"], "cpu")
    before = stack.params_SP.clone()
    call(), call()
    assert not torch.equal(before, stack.params_SP) and bool(stack.alive_S.all())


# The command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_study(monkeypatch, no_compiler):
    monkeypatch.setattr(speed, "SHAPES", (TINY, Shape(2, 4, 8, (63, 54))))
    monkeypatch.setattr(speed, "SINGLE", Shape(2, 5, 8, (96, 78)))
    for name in ("FULL", "QUICK", "MODEL_FULL", "MODEL_QUICK"):
        monkeypatch.setattr(speed, name, PACE)


def test_the_command_writes_what_the_ledger_reads(tiny_study, tmp_path, capsys):
    out = tmp_path / "speed"
    assert main(["speed", "-o", str(out), "-q"]) == 0
    text = capsys.readouterr().out
    assert "| 2x3x8 " in text and "RMSNorm faster by" in text
    made = read_measure(out)
    assert made.command == "normlab speed" and not made.quick
    values = made.values
    assert values["norm-speed"]["ratio"].keys() == {"2x3x8", "2x4x8"}
    for share in (
        values["norm-speed"]["ratio"]["2x3x8"],
        values["rms-speed-single"]["faster_by"],
        values["model-speed"]["faster_by"],
        values["norm-runtime-share"]["time_share"],
        values["dyt-speed"]["faster_by_than_layernorm"]["2x4x8"],
    ):
        assert share.keys() == {"median", "low", "high", "n"} and share["low"] <= share["median"] <= share["high"]
    assert 0 < values["norm-runtime-share"]["flops_share"] < 0.1
    assert made.settings["threads"] == 1 and not made.settings["compile"]["works"]
    tables = {path.stem for path in (out / "tables").glob("*.md")}
    assert tables == {"speed", "speed_cells", "speed_bandwidth", "speed_model"}
    cells = (out / "tables" / "speed_cells.md").read_text()
    assert "no C++ compiler (27 cells)" in cells and "torch.nn has no dyt (9 cells)" in cells
    assert "2x5x8 clone" in cells
    last = {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in cells.splitlines() if "|" in line}
    assert last["2x3x8 DyT forward"] == "–" and last["2x3x8 RMSNorm forward"] in ("handwritten", "native", "no winner")


def test_quick_says_what_it_shortened(tiny_study, tmp_path, capsys):
    assert main(["speed", "--quick", "--json", "-q", "-o", str(tmp_path / "out")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["command"] == "normlab speed --quick"
    assert {row["shape"] for row in answer["tables"]["speed"]} == {"2x3x8", "2x4x8", "2x5x8"}
    assert "shortened by --quick" in (tmp_path / "out" / "tables" / "speed.md").read_text().lower()


def test_quick_leaves_cells_out_by_the_size_of_the_shape():
    small, second, third, largest = (speed.quick_cells(shape) for shape in speed.SHAPES)
    assert {c.norm for c in small if c.implementation == "compiled"} == {"layernorm", "rmsnorm"}
    assert {c.direction for c in second} == {"forward", "backward", "both"}
    assert set(third) == set(speed.quick_cells(speed.SINGLE)) == {LN, RMS, speed_norms.DYT}
    assert set(largest) == {LN, RMS}


def test_a_device_that_is_not_there_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["speed", "--device", "cuda", "-o", str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "--device cuda" in said
    assert not (tmp_path / "x").exists()
