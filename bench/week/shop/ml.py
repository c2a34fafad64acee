"""Machine learning: train the ranker for a day and more, evaluate and publish it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from bench.week.shop.world import world
from holdfast import current_job

STEPS = 1600  # of an epoch
REPORTS = 8  # of an epoch


class OutOfMemoryError(RuntimeError):
    """The memory of the GPU is full."""


class State(msgspec.Struct):
    """The checkpoint."""

    epoch: int = 0
    step: int = 0
    weights: str = ""
    best: dict[str, Any] = {}


async def train_ranker(dataset: str, epochs: int, batch: int, seed: int) -> dict[str, Any]:
    """Train, epoch by epoch, from the last checkpoint."""
    job = current_job()
    state = job.checkpoint(State, State())
    job.log(f"{dataset}: batch {batch}, seed {seed}" + (f", resumed at epoch {state.epoch}" * bool(state.epoch)))
    for epoch in range(state.epoch + 1, epochs + 1):
        await _train_epoch(epoch, epochs)
        weights = f"s3://models/ranker/{job.id[-4:]}/epoch{epoch}.pt"
        best = {"epoch": epoch, "ndcg": round(0.39 + 0.06 * epoch / epochs, 4)}
        state = State(epoch, epoch * STEPS, weights, best)
        job.save(state, progress=epoch / epochs, message=f"epoch {epoch} of {epochs}")
        job.log(f"checkpoint: {weights} (1.9 GiB, {world.between(3.8, 4.6):.1f} s)")
        if job.stopping:
            job.yield_now()
    return {"epochs": epochs, **state.best}


async def _train_epoch(epoch: int, epochs: int) -> None:
    job = current_job()
    for part in range(1, REPORTS + 1):
        await asyncio.sleep(world.between(230, 320))
        if world.gpu_memory_is_short:
            world.gpu_memory_is_short = False
            raise OutOfMemoryError("CUDA out of memory, tried to allocate 2.4 GiB")
        loss = 0.21 + 0.5 / (epoch + part / REPORTS)
        job.count(samples=STEPS // REPORTS * 4096)
        job.log(f"epoch {epoch}/{epochs} step {part * STEPS // REPORTS}/{STEPS} loss {loss:.4f} lr 2.4e-05")


async def evaluate(model: str) -> float:
    """Evaluate a model."""
    current_job().log(f"{model}: 250,000 queries")
    await asyncio.sleep(world.between(600, 900))
    return round(world.between(0.43, 0.45), 4)


async def publish(model: str) -> str:
    """Put a model into production."""
    await asyncio.sleep(world.between(20, 40))
    return model
