"""Video: transcode uploads; and thumbnails."""

from __future__ import annotations

import asyncio
from subprocess import CalledProcessError

from bench.week.shop.world import Killed, world
from holdfast import current_job

SEGMENT = 60  # seconds


async def transcode(source: str, preset: str, segments: int) -> str:
    """Transcode an upload, segment by segment."""
    job = current_job()
    job.log(f"ffmpeg version 7.1  input {source}  preset {preset}")
    async for number in job.aeach(range(segments)):
        await asyncio.sleep(world.between(0.6, 1.4) * SEGMENT)
        frames = (number + 1) * 1440
        job.count(frames=1440)
        job.log(f"frame={frames:6d} fps={world.between(22, 31):.1f} bitrate={world.between(3900, 4400):.0f}kbits/s")
        if world.happens(0.002):
            raise Killed
        if world.happens(0.003):
            _fail(source)
    thumbnail = world.app.tasks["thumbnails.make"]
    world.app.enqueue_many([thumbnail.bind(source, width) for width in (160, 320, 640)])
    return source.replace("uploads/", "videos/").replace(".mov", ".mp4")


def _fail(source: str) -> None:
    message = f"{source}: moov atom not found"
    current_job().log(f"[mov,mp4 @ 0x55d0c8] {message}")
    raise CalledProcessError(69, ["ffmpeg", "-i", source], stderr=message)


async def make_thumbnail(source: str, width: int) -> str:
    """Make one thumbnail."""
    await asyncio.sleep(world.between(0.08, 0.4) * (1 + width / 640))
    return f"{source}.{width}.webp"
