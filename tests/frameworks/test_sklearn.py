"""scikit-learn's estimators that learn by ``partial_fit``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fixtures import background

from ssp_redis import Replica, UsageError, Worker

pytest.importorskip("sklearn")

from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier, SGDRegressor

from ssp_redis.frameworks.sklearn import replicate

Together = Callable[..., list[Worker]]
Join = Callable[..., Worker]


def ticked(replicas: list[Replica]) -> None:
    for future in [background(replica.tick, 30) for replica in replicas]:
        future.result(40)


def digits(classes: int = 10) -> tuple[Any, Any]:
    x, y = load_digits(return_X_y=True)
    chosen = y < classes
    return x[chosen] / 16.0, y[chosen]


@pytest.mark.parametrize("classes", [2, 10])
def test_classifiers_learn_together(together: Together, classes: int) -> None:
    x, y = digits(classes)
    models = [SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1, random_state=i) for i in range(3)]
    for model in models:
        model.partial_fit(x[:1], y[:1], classes=np.unique(y))
    replicas = [replicate(worker, model) for worker, model in zip(together(3), models, strict=True)]
    for _ in range(3):
        for i, model in enumerate(models):
            model.partial_fit(x[i::3], y[i::3])
        ticked(replicas)
    assert np.array_equal(models[0].coef_, models[2].coef_)
    assert np.array_equal(models[0].intercept_, models[2].intercept_)
    alone = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1, random_state=0)
    for _ in range(3):
        alone.partial_fit(x, y, classes=np.unique(y))
    assert models[1].score(x, y) > alone.score(x, y) - 0.03


def test_partial_fit_goes_on_from_the_shared_values(together: Together) -> None:
    """One sample each: a step of two workers, averaged, is the mean of the steps from the same place."""
    x, y = digits(2)
    y = y * 2.0 - 1
    settings: dict[str, Any] = {"learning_rate": "constant", "eta0": 0.05, "alpha": 0.0, "shuffle": False}
    models = [SGDRegressor(**settings).partial_fit(x[:1], y[:1]) for _ in range(2)]
    replicas = [replicate(worker, model) for worker, model in zip(together(2), models, strict=True)]
    w, b = models[0].coef_.copy(), models[0].intercept_.copy()
    for clock in range(30):
        rows = [2 * clock, 2 * clock + 1]
        for model, row in zip(models, rows, strict=True):
            model.partial_fit(x[row : row + 1], y[row : row + 1])
        ticked(replicas)
        error = x[rows] @ w + b - y[rows]
        w -= 0.05 * (error[:, None] * x[rows]).mean(axis=0)
        b -= 0.05 * error.mean()
    for model in models:
        np.testing.assert_allclose(model.coef_, w, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model.intercept_, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clusters_are_found_together(together: Together, dtype: Any) -> None:
    x = digits()[0].astype(dtype)
    models = [
        MiniBatchKMeans(10, init=x[:10], n_init=1, reassignment_ratio=0).partial_fit(x[i * 100 : i * 100 + 100])
        for i in range(2)
    ]
    replicas = [replicate(worker, model) for worker, model in zip(together(2), models, strict=True)]
    for _ in range(5):
        for i, model in enumerate(models):
            model.partial_fit(x[i::2])
        ticked(replicas)
    assert models[0].cluster_centers_.dtype == dtype
    assert np.array_equal(models[0].cluster_centers_, models[1].cluster_centers_)
    alone = MiniBatchKMeans(10, init=x[:10], n_init=1, reassignment_ratio=0).partial_fit(x[:100])
    for _ in range(5):
        alone.partial_fit(x)
    assert models[0].score(x) > 1.03 * alone.score(x), "scores are negative: the nearer to 0, the better"


def test_what_cannot_be_replicated_is_named(join: Join) -> None:
    worker = join(0)
    x, y = digits()
    with pytest.raises(UsageError, match="SGDClassifier has nothing to share yet: call partial_fit once"):
        replicate(worker, SGDClassifier())
    with pytest.raises(UsageError, match="KMeans cannot be replicated: use one of SGDClassifier, SGDRegressor, MiniB"):
        replicate(worker, KMeans())
    with pytest.raises(UsageError, match=r"SGDClassifier\(average=…\) keeps averages of its own"):
        replicate(worker, SGDClassifier(average=True).partial_fit(x, y, classes=range(10)))
