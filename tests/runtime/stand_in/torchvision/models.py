"""One small network under a name of torchvision's."""

from types import ModuleType

from torch import nn


def list_models(module: ModuleType | None = None) -> list[str]:
    """Return all names."""
    del module
    return ["resnet18"]


def get_model(name: str, num_classes: int = 1_000) -> nn.Module:
    """Return a network that tells some classes apart."""
    assert name in list_models()
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=4),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, num_classes),
    )
