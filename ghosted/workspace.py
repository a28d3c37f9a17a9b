"""Who holds the model? One workspace: the one model in memory, its last calibration, and the lock on computing.

Never more than one model's parameters are alive here: the old model is let go before the next one is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ghosted.experiment import Experiment
from ghosted.progress import CancelFlag, Steps
from ghosted.removed import gap_name
from ghosted.turn import Turn

if TYPE_CHECKING:
    from ghosted.calibration import Calibration
    from ghosted.calibration.kept import KeptStates
    from ghosted.models import LoadedModel, ModelFacts
    from ghosted.preview import Preview
    from ghosted.texts import Slices


class Workspace:
    """The model in memory and what was last computed from it.

    Attributes:
        lock: held by whoever computes; one job at a time.
        turn: held by whoever answers from kept states.
        loaded: the model in memory, if any.
        kept: what else was computed with the model and serves again; it goes when the model does.

    Args:
        loaded: a model that is in memory already, the only one that is ever used then.
        keeps_states: read the text even where its statistics are on disk, because the states serve other ranges.
        turn: who computes first, an answer from kept states or what can wait; a new one by default.
    """

    def __init__(
        self, loaded: LoadedModel | None = None, keeps_states: bool = False, turn: Turn | None = None
    ) -> None:
        self.lock, self.turn = threading.Lock(), turn or Turn()
        self.loaded = loaded
        self.kept: dict[Any, Any] = {}
        self._model_key: tuple[Any, ...] | None = None
        self._is_fixed = loaded is not None
        self._keeps_states = keeps_states
        self._calibration: Calibration | None = None
        self._at_hand: tuple[tuple[Any, ...], Calibration] | None = None
        self._kept: tuple[Calibration, KeptStates] | None = None

    def facts(self, experiment: Experiment) -> ModelFacts:
        """Return what is known of the experiment's model before its weights are read.

        Raises:
            ModelError, ResourceError: it cannot be used here.
        """
        from ghosted import models

        if self.holds(experiment):
            return self.loaded.facts
        return models.describe(experiment.model, experiment.revision, dtype=experiment.dtype)

    def holds(self, experiment: Experiment) -> bool:
        """Return whether the experiment's model is the one in memory."""
        key = (experiment.model, experiment.revision, experiment.dtype)
        return self.loaded is not None and (self._is_fixed or key == self._model_key)

    @property
    def bytes(self) -> int:
        """Bytes of what the next run uses or lets go: the model in memory, and the states kept of its last text."""
        if self.loaded is None:
            return 0
        stores = self._calibration.stores.values() if self._calibration is not None else ()
        return self.loaded.facts.weights_bytes(self.loaded.dtype) + sum(store.bytes for store in stores)

    def model(self, experiment: Experiment, cancel: CancelFlag | None = None) -> Steps[LoadedModel]:
        """Return the experiment's model, loading it if it is not the one in memory.

        The one in memory is let go first, so ask :meth:`facts` before: whatever can be refused without weights is
        refused there.

        Raises:
            ModelError, ResourceError: it cannot be had.
        """
        from ghosted import models

        if self.holds(experiment):
            return self.loaded
        self.loaded = self._calibration = self._at_hand = self._kept = None
        self.kept.clear()
        self.loaded = yield from models.load(
            experiment.model, revision=experiment.revision, dtype=experiment.dtype, cancel=cancel
        )
        self._model_key = (experiment.model, experiment.revision, experiment.dtype)
        return self.loaded

    def calibration(
        self, experiment: Experiment, slices: Slices, gaps: Sequence[range], needs: frozenset[str],
        cancel: CancelFlag | None = None,
    ) -> Steps[Calibration]:
        """Return a calibration on these slices, with the statistics of these gaps.

        The last one serves again when only the gaps changed: from its kept states, or by reading the blocks up to
        the gap once more where not all states fitted. Additive statistics of an earlier process come from the cache;
        a gap that is not among them is computed by a new pass, whose states then serve further gaps.
        """
        from ghosted.calibration import Calibration, calibrate, saved, windows_per_batch
        from ghosted.calibration.store import limit

        windows, held_out, most = slices.calibration, slices.held_out, limit()
        batch = windows_per_batch(experiment.batch, windows.window)
        known = Calibration(self.loaded, {"calibration": windows, "held_out": held_out}, batch, most)
        entry = saved.key(known.identity[:-1], gaps, needs)  # statistics do not depend on what is held out
        current = self._calibration
        compared = slice(None if len(held_out) else -1)  # one that also holds text out serves where none is needed
        if current is not None and current.identity[compared] != known.identity[compared]:
            current = None
        without_states = current is not None and not len(current.stores["calibration"])
        if current is None or (without_states and needs and not current.knows(gaps, needs)):
            self._calibration = self._at_hand = self._kept = None
            if self._keeps_states or not saved.restore(entry, known, gaps, needs):
                known = yield from calibrate(
                    self.loaded, windows, held_out, gaps, needs, batch=experiment.batch, store_bytes=most,
                    cancel=cancel,
                )
                saved.save(entry, known, gaps)
            self._calibration = known
        self._at_hand = _statistics_key(experiment), self._calibration
        for gap in gaps:
            yield from self._calibration.statistics(gap, needs, cancel=cancel)
        names = {gap_name(gap) for gap in gaps}
        self._calibration.gaps = {n: s for n, s in self._calibration.gaps.items() if n in names}
        return self._calibration

    def at_hand(self, experiment: Experiment) -> Calibration | None:
        """Return the calibration that this experiment would use, if its states are kept; never waits for the lock.

        Texts are compared by name: a file that has changed since is noticed by the next run.
        """
        at_hand = self._at_hand  # read once: the thread that holds the lock may replace it
        if at_hand is None or at_hand[0] != _statistics_key(experiment) or not len(at_hand[1].stores["calibration"]):
            return None
        return at_hand[1]

    def preview(self, experiment: Experiment) -> Preview | None:
        """Return what answers for other ranges from states at hand, or ``None``; never waits for the lock.

        What one preview computes serves the next; all of it goes when the calibration does.
        """
        from ghosted.calibration.kept import KeptStates
        from ghosted.preview import Preview

        calibration = self.at_hand(experiment)
        if calibration is None:
            return None
        kept = self._kept
        if kept is None or kept[0] is not calibration:
            kept = self._kept = calibration, KeptStates(calibration, self.lock)
        return Preview(calibration, experiment, kept[1], self.turn)


def _statistics_key(experiment: Experiment) -> tuple[Any, ...]:
    """Return the settings that decide the kept states; a text that the model writes is as long as all that is read."""
    e = experiment
    key = (e.model, e.revision, e.dtype, e.text, e.tokens, e.window, e.calibration_window, e.held_out, e.batch)
    return (*key, e.seed, e.evaluate, e.windows) if "generated" in (e.text, e.held_out, *e.evaluate) else key
