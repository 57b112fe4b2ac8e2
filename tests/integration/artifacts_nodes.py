"""Folders that travel between nodes of one process."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.integration.pool_nodes import job

from shoal.blobs import packing, trees
from shoal.model.ids import BlobId
from shoal.runtime.node import Node


def pack(node: Node, folder: Path) -> BlobId:
    """Put a folder into the store of a node, as submitting does."""
    store = node.artifacts.store
    packed = packing.pack_workdir(folder, lambda file: store.put_file(file, "test"))
    tree = store.put(trees.encode(trees.make(node.artifacts.salt, packed.entries)))
    store.hold("test", (tree,))
    return tree


def unpacked(node: Node, tree: BlobId) -> dict[str, bytes]:
    """Return the files of a tree that a node has."""
    found = node.artifacts.blobs.shelf.tree(tree)
    assert isinstance(found, trees.Tree), found
    files = [e for e in found.entries if e.kind in ("file", "program")]
    return {e.path: node.artifacts.store.read(BlobId(e.to)) or b"?" for e in files}


async def submit(node: Node, name: str, spec: str) -> None:
    """Hand a job in."""
    made = job(name, spec)
    await asyncio.to_thread(node.artifacts.check, made)
    answer = await node.clients.submit(made)
    assert not answer.refused, answer


async def until(
    condition: Callable[[], bool], within_s: float = 60.0, pause_s: float = 0.02
) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - Nobody tells.
            await asyncio.sleep(pause_s)
