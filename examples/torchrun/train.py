"""Train a small classifier with DistributedDataParallel, as torch's own tutorial does.

Nothing here knows of shoal: `torchrun` reads where the other machines are from its
environment. Run it alone with `torchrun train.py`.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 3


def main() -> None:
    """Train for some epochs; rank 0 prints the mean loss of each."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    points = torch.randn(2_048, 16)
    labels = (points.sum(dim=1) > 0).long()
    dataset = TensorDataset(points, labels)
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(dataset)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in DataLoader(dataset, batch_size=64, sampler=sampler):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            mean = total[0] / total[1]
            print(f"epoch {epoch}: loss {mean:.3f}, {dist.get_world_size()} processes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
