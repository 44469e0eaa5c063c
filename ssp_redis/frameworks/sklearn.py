"""scikit-learn: ``replicate(worker, estimator)``, and ``tick()`` after each ``partial_fit``."""

from __future__ import annotations

from typing import Any

from ssp_redis.errors import UsageError
from ssp_redis.frameworks import MissingFramework
from ssp_redis.given import Array
from ssp_redis.replica import Replica
from ssp_redis.worker import Worker

try:
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.linear_model import SGDClassifier, SGDRegressor
except ImportError as error:
    raise MissingFramework("scikit-learn", "sklearn") from error

#: What each kind of model learns.
_LEARNED: dict[Any, tuple[str, ...]] = {
    SGDClassifier: ("coef_", "intercept_"),
    SGDRegressor: ("coef_", "intercept_"),
    MiniBatchKMeans: ("cluster_centers_", "_counts"),
}


def replicate(
    worker: Worker, estimator: Any, *, name: str = "model", scale: float | str = "workers", every: int = 1
) -> Replica:
    """Keep an SGDClassifier, SGDRegressor or MiniBatchKMeans together with those of the other workers.

    The estimator must have its arrays: call ``partial_fit`` once before, with all ``classes``. All workers go on from
    the values of whoever comes first. MiniBatchKMeans shares its counts as it does its centers; give it
    ``reassignment_ratio=0``, or one worker moves centers from where the others need them.

    Args:
        worker: a member.
        estimator: one of the three, or derived from one.
        name: of the model, should a job have several.
        scale: what local changes are multiplied with, see :class:`Replica`.
        every: calls of ``partial_fit`` for each clock.

    Raises:
        UsageError: another kind of estimator, one that was not fitted yet, or that averages.
        TableMismatch: see :class:`Replica`.
    """
    kind = next((kind for kind in _LEARNED if isinstance(estimator, kind)), None)
    if kind is None:
        known = ", ".join(kind.__name__ for kind in _LEARNED)
        raise UsageError(f"{type(estimator).__name__} cannot be replicated: use one of {known}, or a Replica")
    if getattr(estimator, "average", False):
        raise UsageError(
            f"{kind.__name__}(average=…) keeps averages of its own, which are not shared: use average=False"
        )
    learned = _LEARNED[kind]
    if not all(hasattr(estimator, key) for key in learned):
        raise UsageError(f"{kind.__name__} has nothing to share yet: call partial_fit once before it is replicated")

    # partial_fit makes some of them anew each time
    def read() -> dict[str, Array]:
        return {key: getattr(estimator, key) for key in learned}

    return Replica(worker, read, name=name, scale=scale, every=every)
