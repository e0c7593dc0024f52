"""How the speed study times: every cell, in interleaved rounds, with clocks that can be read. No time is asserted."""

from contextlib import nullcontext

import pytest
import torch
from tiny_speed import PACE, TINY

from normlab.studies import speed_shapes
from normlab.studies.speed_clock import cpu_times, times
from normlab.studies.speed_norms import ALL, HANDWRITTEN, LN, RMS
from normlab.studies.speed_shapes import Pace, Shape, Subject, measure_shape, rounds_for, visit


def test_every_cell_of_a_shape_is_timed_or_says_why(no_compiler):
    at = measure_shape(TINY, ALL, (LN, RMS), PACE, "cpu")
    assert set(at.cells) | set(at.absent) == set(ALL) and not set(at.cells) & set(at.absent)
    assert {cell.norm for cell in at.cells if cell.implementation == "compiled"} == {"none"}
    whys = {cell.implementation: why for cell, why in at.absent.items()}
    assert whys == {
        "native": "torch.nn has no such norm",
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
