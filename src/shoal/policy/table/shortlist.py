"""A sorted shortlist of the workers that fit a task shape, repaired as rows change.

A shortlist is a sorted run of all fitting rows, made with numpy when the shape is
first seen, and a heap of the rows that were scored anew since, and of the first of the
run. Rows that changed are scored at the next question, so a change costs nothing for
shapes that are not asked for. An entry is void if its row has got another since, and is
dropped when it comes up. The answers equal a full scan's, at a hundredth of its price.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import numpy as np

from shoal.model.ids import NodeId
from shoal.policy.filters import mask
from shoal.policy.table.grid import Grid
from shoal.policy.table.rows import Floats, Ints, WorkerRow
from shoal.policy.table.task_shapes import STATES_MAX, Kinds, Need, TaskShape

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from shoal.policy.ranking.ranking import Ranking

SHORTLISTS_MIN: Final = 8
ROWS_KEPT_MAX: Final = 1_000_000
"""Rows in all shortlists of a table. Those unused for longest are forgotten first, but
the last few are kept however many workers there are."""

REPAIRS_SHARE: Final = 4
"""When more than one row in this many changed, sorting all anew is quicker."""

REPAIRS_MIN: Final = 64

RUN_MIN: Final = 16
"""Fewer rows than these are scored one by one, which is quicker than with numpy."""

WhenFuller: TypeAlias = Literal["better", "worse", "unclear"]
Key: TypeAlias = tuple[float | Ints | Floats, ...]
"""Numbers to compare one worker by, or columns of them for all workers."""

Entry: TypeAlias = tuple[Any, ...]
"""The parts of the key, the node, the row, and how many changes there had been when the
row was scored. All in one tuple, since those within others compare four times slower.
"""

NODE: Final = -3
ROW: Final = -2
WHEN: Final = -1

IN_RUN: Final[Entry] = ()
"""The entry of a row that is further down in the sorted run."""

UNSEEN: Final[Key] = ()
"""The key of a state that was not met yet."""


@final
class Shortlist:
    """The rows of a grid that fit one need, by one ranking."""

    def __init__(self, need: Need, ranking: Ranking, grid: Grid) -> None:
        self.need = need
        self._ranking = ranking
        self._grid = grid
        # For states of workers, their keys; None if the need does not fit.
        self._known: dict[int, Key | None] | None = None
        if ranking.by_state and need.rtt_max_us is None and not need.nodes:
            self._known = {}
        self._sort()

    def best(self, skip: Collection[NodeId] = ()) -> int | None:
        """Return the index of the best row whose node is not in `skip`, if any.

        Of equal rows the one with the smallest node id is the best.
        """
        if self._seen != self._grid.now:
            self._repair()
        found = self._top()
        aside: list[Entry] = []
        while found is not None and found[NODE] in skip:
            aside.append(found)
            self._drop(found)
            found = self._top()
        for entry in aside:
            heappush(self._heap, entry)
        return None if found is None else found[ROW]

    def _sort(self) -> None:
        self.need.learn_kinds()
        grid = self._grid
        self._run: list[int] = []
        self._run_keys: list[list[int | float]] = []
        self._heap: list[Entry] = []
        # For each row its entry, unless it does not fit.
        self._scored: list[Entry | None] = [None] * len(grid.rows)
        self._sorted_at = self._seen = grid.now
        self._gains_seen, self._losses_seen = grid.gains.end, grid.losses.end
        if len(grid.rows) < RUN_MIN:
            self._score(range(len(grid.rows)))
        else:
            self._sort_run(grid)
        self._places = iter(range(len(self._run)))
        self._next_of_run()

    def _sort_run(self, grid: Grid) -> None:
        order = grid.order()
        rows = order[mask(self.need, grid)[order]]
        key = self._ranking.key(self.need, grid.columns)
        columns = [np.broadcast_to(part, grid.columns.live.shape)[rows] for part in key]
        # The sort is stable and the rows are in the order of their node ids.
        ranks = np.lexsort(columns[::-1])
        self._run = rows[ranks].tolist()
        self._run_keys = [column[ranks].tolist() for column in columns]
        for index in self._run:
            self._scored[index] = IN_RUN

    def _repair(self) -> None:
        """Score rows again that may be better than they were."""
        grid = self._grid
        rows, behind = len(grid.rows), grid.now - self._seen
        if behind > REPAIRS_MIN and behind > rows // REPAIRS_SHARE:
            self._sort()
            return
        if len(self._heap) > 2 * rows:
            self._sweep()
        if len(self._scored) < rows:
            self._scored += [None] * (rows - len(self._scored))
        need = self.need
        if len(need.sizes) <= len(need.kinds.devices):
            need.learn_kinds()
        self._score(dict.fromkeys(self._maybe_better()))
        self._seen = grid.now

    def _maybe_better(self) -> list[int]:
        """Choose the rows that must be scored now: the others can wait.

        A row that only got worse keeps its old entry until that comes up. A row
        that did not fit does not fit now that it lost room.
        """
        grid, scored, when_fuller = self._grid, self._scored, self._ranking.when_fuller
        gained = grid.gains.since(self._gains_seen)
        self._gains_seen += len(gained)
        if when_fuller == "worse":
            return gained
        lost = grid.losses.since(self._losses_seen)
        self._losses_seen += len(lost)
        if when_fuller == "better":
            gained = [index for index in gained if scored[index] is None]
        return gained + [index for index in lost if scored[index] is not None]

    def _score(self, indices: Iterable[int]) -> None:
        """Give rows a new entry, unless they are no better than they were."""
        if self._known is not None:
            self._score_by_state(indices, self._known)
            return
        rows, now = self._grid.rows, self._grid.now
        need, key_of = self.need, self._ranking.key
        cpu_milli, gpus_whole = need.cpu_milli, need.gpus_whole_min
        heap, scored = self._heap, self._scored
        may_wait = self._ranking.when_fuller != "better"
        for index in indices:
            row = rows[index]
            # Most rows that do not fit fail here, without a call.
            if row is None or row.gpus_whole < gpus_whole or row.cpu_milli < cpu_milli:
                scored[index] = None
                continue
            held = scored[index] if may_wait else None
            if not held and not row.fits_besides(need):
                scored[index] = None
                continue
            entry = key_of(need, row) + (row.node, index, now)  # noqa: RUF005 - faster
            if held and held < entry:
                continue  # Its old entry comes up soon enough.
            if held and not row.fits_besides(need):
                scored[index] = None
                continue
            scored[index] = entry
            heappush(heap, entry)

    def _score_by_state(
        self, indices: Iterable[int], known: dict[int, Key | None]
    ) -> None:
        rows, now, kinds = self._grid.rows, self._grid.now, self.need.kinds
        heap, scored = self._heap, self._scored
        for index in indices:
            row = rows[index]
            if row is None:
                scored[index] = None
                continue
            state = row.known_state
            if state < kinds.states_from:
                state = row.state
            key = known.get(state, UNSEEN)
            if key is UNSEEN:
                key = self._learn_key(known, row)
            if key is None:
                scored[index] = None
                continue
            entry = key + (row.node, index, now)  # noqa: RUF005 - twice as fast
            held = scored[index]
            if held and held < entry:
                continue
            scored[index] = entry
            heappush(heap, entry)

    def _learn_key(self, known: dict[int, Key | None], row: WorkerRow) -> Key | None:
        if len(known) >= STATES_MAX:
            known.clear()
        fits = row.fits(self.need)
        key = known[row.state] = self._ranking.key(self.need, row) if fits else None
        return key

    def _top(self) -> Entry | None:
        """Return the best entry that still holds, and drop the entries before it."""
        changed, scored, heap = self._grid.changed, self._scored, self._heap
        while heap:
            entry = heap[0]
            index: int = entry[ROW]
            if scored[index] is not entry:
                self._drop(entry)
            elif changed[index] <= entry[WHEN]:
                return entry
            else:
                self._drop(entry)
                scored[index] = None
                self._score((index,))
        return None

    def _sweep(self) -> None:
        """Take void entries out of the heap: at most one for each row is left."""
        first = self._first
        self._heap = [held for held in self._scored if held and held is not first]
        if first is not None:
            self._heap.append(first)
        heapify(self._heap)

    def _next_of_run(self) -> None:
        """Go one place further in the sorted run; make the entry there."""
        self._first: Entry | None = None
        for place in self._places:
            index = self._run[place]
            row = self._grid.rows[index]
            if row is not None and self._scored[index] is IN_RUN:
                key = [column[place] for column in self._run_keys]
                self._first = (*key, row.node, index, self._sorted_at)
                self._scored[index] = self._first
                heappush(self._heap, self._first)
                break

    def _drop(self, entry: Entry) -> None:
        """Take out the first entry of the heap, where the run always has one."""
        heappop(self._heap)
        if entry is self._first:
            self._next_of_run()


@final
class Shortlists:
    """The shortlists of one grid that were used last."""

    def __init__(self, grid: Grid, kinds: Kinds) -> None:
        self._grid = grid
        self._kinds = kinds
        self._kept: OrderedDict[tuple[TaskShape, Ranking], Shortlist] = OrderedDict()

    def get(self, shape: TaskShape, ranking: Ranking) -> Shortlist:
        """Return the shortlist of this shape and ranking, made anew if need be."""
        key = (shape, ranking)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        rows = max(1, len(self._grid.rows))
        while len(self._kept) >= max(SHORTLISTS_MIN, ROWS_KEPT_MAX // rows):
            self._kept.popitem(last=False)
        found = self._kept[key] = Shortlist(
            Need(shape, self._kinds), ranking, self._grid
        )
        return found
