"""Batches of serials: what was asked for and has not arrived, in few words."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.nodegroups.serials import MAX_BATCHES, Batch, Ranges, compact, format_ranges

NOW = "2026-01-02T03:04:05Z"

quick = settings(deadline=None, max_examples=60)
sets_of_serials = st.frozensets(st.integers(0, 60))


@st.composite
def consecutive_batches(draw: st.DrawFn, *, most: int = 8) -> list[Batch]:
    """Batches as a group asks for them: each begins somewhere after the last one's end."""
    batches: list[Batch] = []
    first = draw(st.integers(0, 3))
    for number in range(draw(st.integers(0, most))):
        last = first + draw(st.integers(0, 8))
        spent = draw(st.frozensets(st.integers(first, last), max_size=4))
        batches.append(
            Batch(first, last, f"2026-01-02T03:{number // 60:02}:{number % 60:02}Z", spent)
        )
        first = last + draw(st.integers(1, 4))
    return batches


def serials_of(batches: tuple[Batch, ...] | list[Batch]) -> set[int]:
    return {serial for batch in batches for serial in batch}


@pytest.mark.parametrize(
    ("serials", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([5, 6], "5-6"),
        ([5, 17, 18, 19], "5,17-19"),
        ([19, 5, 18, 17, 17], "5,17-19"),
        ([0, 1, 3], "0-1,3"),
        (range(20_000), "0-19999"),
    ],
)
def test_ranges_are_written_sorted_and_compact(serials: list[int], text: str) -> None:
    assert format_ranges(serials) == text
    assert list(Ranges(text)) == sorted(set(serials))


@given(serials=st.frozensets(st.integers(0, 10_000)))
@quick
def test_ranges_are_read_back_as_the_same_set(serials: frozenset[int]) -> None:
    assert set(Ranges(format_ranges(serials))) == serials


@pytest.mark.parametrize(
    "text",
    [
        *("a", "-", "5-", "-5", "5--7", "5-6-7", "7-5", ",", "1,,2", "1,", "1;2", " 1", "1_0"),
        *("1-1", "2,1", "1,2", "1-2,3", "1.0", "٣", "01"),
    ],
)
def test_what_is_not_written_like_that_is_refused(text: str) -> None:
    # Nobody but the operator writes ranges: anything else is a mistake, and guessing could make
    # a node a second time under a name that is spent.
    with pytest.raises(ValueError, match="range"):
        Ranges(text)


def test_a_batch_has_the_serials_between_its_ends_but_for_the_spent() -> None:
    batch = Batch(3, 7, NOW, frozenset({4}))
    assert list(batch) == [3, 5, 6, 7]
    assert [s in batch for s in (2, 3, 4, 7, 8)] == [False, True, False, True, False]


@given(batches=consecutive_batches(), here=sets_of_serials, gone=sets_of_serials)
@quick
def test_compact_keeps_exactly_the_missing_and_the_gone_out(
    batches: list[Batch], here: frozenset[int], gone: frozenset[int]
) -> None:
    missing = serials_of(batches) - here - gone
    kept = compact(batches, here=here, gone=gone)
    # What has arrived may stay within a batch: its node shows that it is there.
    assert serials_of(kept) - here == missing
    for batch in kept:
        assert {batch.first, batch.last} <= missing
        assert all(batch.first <= serial <= batch.last for serial in batch.spent)
    # Otherwise a quiet group's status would be written again and again.
    assert compact(kept, here=here, gone=gone) == kept
    # After a crash nobody remembers `gone`: the record alone must keep those serials out, as long
    # as its batch is open.
    assert not serials_of(compact(kept, here=here, gone=frozenset())) & gone


def test_a_batch_keeps_its_date_while_it_shrinks() -> None:
    assert compact([Batch(0, 9, NOW)], here={0, 1, 9}, gone={4}) == (
        Batch(2, 8, NOW, frozenset({4})),
    )


def test_up_to_fifty_batches_are_kept_apart() -> None:
    batches = [Batch(2 * n, 2 * n, NOW) for n in range(MAX_BATCHES)]
    assert compact(batches, here=set(), gone=set()) == tuple(batches)


@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=20)
def test_merging_loses_none_of_the_missing_and_adds_nothing(seed: int) -> None:
    # Drawn from a seed: a strategy would take seconds for so many batches.
    draw = random.Random(seed)
    batches, first = [], 0
    for _ in range(draw.randint(MAX_BATCHES, 5 * MAX_BATCHES)):
        last = first + draw.randint(0, 4)
        spent = frozenset(draw.sample(range(first, last + 1), draw.randint(0, last - first)))
        batches.append(Batch(first, last, NOW, spent))
        first = last + draw.randint(1, 4)
    here, gone = (set(draw.sample(range(first), first // 5)) for _ in range(2))
    missing = serials_of(batches) - here - gone
    kept = compact(batches, here=here, gone=gone)
    assert len(kept) <= MAX_BATCHES
    assert serials_of(kept) - here == missing
    assert [b.first for b in kept] == sorted(b.first for b in kept)


def test_merged_batches_have_the_older_date_and_leave_out_the_gap() -> None:
    batches = [Batch(10 * n, 10 * n + 1, f"2026-01-02T03:04:{n:02}Z") for n in range(51)]
    kept = compact(batches, here=set(), gone=set())
    assert kept[0] == Batch(0, 11, "2026-01-02T03:04:00Z", frozenset(range(2, 10)))
    assert kept[-1] == batches[-1], "the odd one out stays as it is"


def test_a_long_gap_is_short_on_paper() -> None:
    batches = [Batch(1_000 * n, 1_000 * n, NOW) for n in range(2 * MAX_BATCHES)]
    merged = compact(batches, here=set(), gone=set())
    assert format_ranges(merged[0].spent) == "1-999"
