"""PyTorch models, trained by PyTorch's own optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fixtures import background

from ssp_redis import Job, NonFinite, Replica, TableMismatch, UsageError, Worker

torch = pytest.importorskip("torch")

from ssp_redis.frameworks.torch import replicate  # noqa: E402

Together = Callable[..., list[Worker]]
Join = Callable[..., Worker]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def mlp(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def batch(seed: int, rows: int = 32) -> tuple[Any, Any]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 8, generator=random), torch.randint(3, (rows,), generator=random)


def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def ticked(replicas: list[Replica]) -> None:
    for future in [background(replica.tick, 30) for replica in replicas]:
        future.result(40)


def same(first: Any, second: Any, **tolerance: float) -> None:
    for (key, a), (other, b) in zip(first.state_dict().items(), second.state_dict().items(), strict=True):
        assert key == other
        torch.testing.assert_close(a, b, msg=lambda text, key=key: f"{key}: {text}", **tolerance)


def test_four_workers_on_parts_of_a_batch_are_one_process_on_all_of_it(together: Together) -> None:
    alone = mlp()
    models = [mlp(seed) for seed in range(4)]  # all take over the first's
    workers = together(4, staleness=0)
    replicas = [replicate(worker, model) for worker, model in zip(workers, models, strict=True)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in [alone, *models]]
    for clock in range(20):
        x, y = batch(clock)
        step(alone, optimizers[0], x, y)
        for model, optimizer, a, b in zip(models, optimizers[1:], x.chunk(4), y.chunk(4), strict=True):
            step(model, optimizer, a, b)
        ticked(replicas)
    for model in models:
        same(alone, model, rtol=1e-5, atol=1e-6)
    same(models[0], models[3], rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_optimizers_keep_their_state(together: Together, kind: str) -> None:
    """On the same batch every worker makes the same step, so two of them, averaged, are one."""
    models = [mlp(), mlp(), mlp()]
    make = {
        "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9),
        "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
    }[kind]
    optimizers = [make(model) for model in models]
    replicas = [replicate(worker, model) for worker, model in zip(together(2), models[1:], strict=True)]
    for clock in range(10):
        for model, optimizer in zip(models, optimizers, strict=True):
            step(model, optimizer, *batch(clock))
        ticked(replicas)
    same(models[0], models[1], rtol=1e-4, atol=1e-5)


def test_statistics_are_averaged_and_counters_are_everyones_own(together: Together) -> None:
    models = [torch.nn.BatchNorm1d(8), torch.nn.BatchNorm1d(8)]
    replicas = [replicate(worker, model, scale=1) for worker, model in zip(together(2), models, strict=True)]
    expected = copy.deepcopy(models)
    for model, other, seed in zip(models, expected, (1, 2), strict=True):
        for m in (model, other):
            m(batch(seed)[0])
    models[1](batch(3)[0])
    expected[1](batch(3)[0])
    ticked(replicas)
    for key in ("running_mean", "running_var"):
        mean = sum(getattr(model, key) for model in expected) / 2
        for model in models:
            torch.testing.assert_close(getattr(model, key), mean)
    assert [int(model.num_batches_tracked) for model in models] == [1, 2]


def test_frozen_parameters_are_made_alike_and_never_sent_again(together: Together) -> None:
    models = [mlp(0), mlp(1)]
    for model in models:
        model[0].requires_grad_(False)
    replicas = [replicate(worker, model) for worker, model in zip(together(2), models, strict=True)]
    same(models[0], models[1])
    ticked(replicas)
    worker = replicas[0].worker
    with Job(worker._clock.settings.url, worker.job) as job:
        assert job.table("model.float32").get().shape == (16 * 3 + 3,)
    models[0][0].requires_grad_(True)
    with pytest.raises(UsageError, match=r"0\.weight was unfrozen after the model was replicated"):
        replicas[0].tick()


class Tied(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)
        self.out = torch.nn.Linear(4, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: Any) -> Any:
        return self.out(self.embed(x))


def test_tied_weights_count_once(join: Join) -> None:
    model = Tied()
    replica = replicate(join(0), model, scale=1)
    before = model.embed.weight.detach().clone()
    with torch.no_grad():
        model.out.weight += 1
    replica.tick()
    assert model.embed.weight is model.out.weight
    torch.testing.assert_close(model.embed.weight.detach(), before + 1)
    with Job(replica.worker._clock.settings.url, replica.worker.job) as job:
        assert job.table("model.float32").get().shape == (40,)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_models_of_other_types(together: Together, dtype: str) -> None:
    kind = getattr(torch, dtype)
    models = [mlp(0).to(kind), mlp(1).to(kind)]
    replicas = [replicate(worker, model) for worker, model in zip(together(2), models, strict=True)]
    same(models[0], models[1], rtol=0, atol=0)
    for clock in range(3):
        for model in models:
            x, y = batch(clock)
            step(model, torch.optim.SGD(model.parameters(), lr=0.1), x.to(kind), y)
        ticked(replicas)
    assert models[0][0].weight.dtype == kind
    same(models[0], models[1], rtol=0, atol=0)


class Words(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, seed: int = 0, bag: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        kind = torch.nn.EmbeddingBag if bag else torch.nn.Embedding
        self.embed = kind(20_000, 4, sparse=True)
        self.out = torch.nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.out(self.embed(x))


@pytest.mark.parametrize("bag", [False, True])
def test_sparse_gradients_push_only_the_rows_they_touch(together: Together, bag: bool) -> None:
    alone, *models = [Words(bag=bag) for _ in range(3)]
    replicas = [replicate(worker, model) for worker, model in zip(together(2), models, strict=True)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.3) for model in [alone, *models]]
    first = alone.embed.weight.detach().clone()
    words = torch.tensor([[3, 5], [7, 3], [5, 999], [0, 3]])

    def learn(model: Any, optimizer: Any, x: Any) -> None:
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()

    for _ in range(5):
        learn(alone, optimizers[0], words)
        for model, optimizer, part in zip(models, optimizers[1:], words.chunk(2), strict=True):
            learn(model, optimizer, part)
        ticked(replicas)
    assert float(replicas[0].worker.stats()["bytes_out"]) < first.numel() * 4, "all rows are more than five clocks took"
    for replica, model in zip(replicas, models, strict=True):
        replica.refresh()
        same(alone, model, rtol=1e-5, atol=1e-6)
    touched = (alone.embed.weight.detach() != first).any(1).nonzero().reshape(-1).tolist()
    assert touched == [0, 3, 5, 7, 999]
    worker = replicas[0].worker
    [view] = worker._store.sparse.values()  # type: ignore[union-attr]
    assert {row for delta in view.held.values() for row in delta.numbers} <= set(
        view.layout.numbers(np.array([3, 5, 7]))
    )


def test_sparse_adam_works_unchanged(join: Join) -> None:
    alone, model = Words(), Words()
    replica = replicate(join(0), model, scale=1)
    optimizers = [torch.optim.SparseAdam([m.embed.weight], lr=0.1) for m in (alone, model)]
    for clock in range(6):
        for m, optimizer in zip((alone, model), optimizers, strict=True):
            optimizer.zero_grad()
            m(torch.tensor([clock % 3, 4])).sum().backward()
            optimizer.step()
        replica.tick()
    replica.refresh()
    same(alone, model, rtol=1e-5, atol=1e-6)


def test_momentum_moves_rows_that_are_not_in_the_batch(join: Join) -> None:
    alone, model = Words(), Words()
    replica = replicate(join(0), model, scale=1)
    optimizers = [torch.optim.SGD([m.embed.weight], lr=0.1, momentum=0.9) for m in (alone, model)]
    for clock in range(6):
        for m, optimizer in zip((alone, model), optimizers, strict=True):
            optimizer.zero_grad()
            m(torch.tensor([clock % 3, 4])).sum().backward()
            optimizer.step()
        replica.tick()
    replica.refresh()
    same(alone, model, rtol=1e-5, atol=1e-6)
    with Job(replica.worker._clock.settings.url, replica.worker.job) as job:
        replica.tick()
        offsets = job.table("model.rows0").get(range(5))
    moved = (model.embed.weight - Words().embed.weight).detach().numpy()[:5]
    np.testing.assert_allclose(offsets, moved, rtol=1e-4, atol=1e-6)


def test_several_mini_batches_a_clock(join: Join) -> None:
    alone, model = mlp(), mlp()
    replica = replicate(join(0), model, every=4)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (alone, model)]
    for clock in replica.clocks(3):
        x, y = batch(clock)
        for m, optimizer in zip((alone, model), optimizers, strict=True):
            step(m, optimizer, x, y)
    assert replica.worker.clock == 3
    same(alone, model, rtol=1e-4, atol=1e-6)


def test_channels_last_and_scalars(join: Join) -> None:
    model = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    model.temperature = torch.nn.Parameter(torch.tensor(2.0))
    replica = replicate(join(0), model, scale=1)
    before = copy.deepcopy(model)
    for _ in range(2):
        with torch.no_grad():
            for a, b in zip(model.parameters(), before.parameters(), strict=True):
                a += 0.5
                b += 0.5
        replica.tick()
        same(model, before)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_model_that_differs_is_named(together: Together) -> None:
    first, second = together(2)
    replicate(first, mlp())
    with pytest.raises(TableMismatch, match=r"2\.bias is of shape \(4,\) here and \(3,\) in the job"):
        replicate(second, torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)))
    with pytest.raises(TableMismatch, match=r"2\.bias and 1 more is missing here; 1\.bias and 1 more is unknown"):
        replicate(second, torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)))


def test_a_gradient_of_nan_is_named_and_undone(join: Join) -> None:
    model = mlp()
    replica = replicate(join(0), model)
    before = copy.deepcopy(model)
    x, y = batch(0)
    step(model, torch.optim.SGD(model.parameters(), lr=0.1), x * float("nan"), y)
    with pytest.raises(NonFinite, match=r"0\.bias has 16 values that became NaN"):
        replica.tick()
    replica.pull()
    same(model, before)
    step(model, torch.optim.SGD(model.parameters(), lr=0.1), x, y)
    assert replica.tick() == 1


def test_a_parameter_that_was_replaced_is_named(join: Join) -> None:
    model = mlp()
    replica = replicate(join(0), model)
    model[2] = torch.nn.Linear(16, 3)
    with pytest.raises(UsageError, match=r"2\.weight is not the tensor that it was when the model was replicated"):
        replica.tick()


def test_integer_and_complex_parameters_are_refused(join: Join) -> None:
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(UsageError, match="w is complex64: a replica is of float32"):
        replicate(join(0), model)
