"""`predbn train` and `predbn tune`, put together from their subcommands."""

from __future__ import annotations

from .help import App
from .train_cifar10 import train_cifar10_command
from .train_criteo import train_criteo_command
from .train_imagenet import train_imagenet_command
from .tune_cifar10 import tune_cifar10_command

train_app = App("Train the paper's networks.")
train_app.command("cifar10")(train_cifar10_command)
train_app.command("criteo")(train_criteo_command)
train_app.command("imagenet")(train_imagenet_command)

tune_app = App("Search for the numbers of a training recipe.")
tune_app.command("cifar10")(tune_cifar10_command)
