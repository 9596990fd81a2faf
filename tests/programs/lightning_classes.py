"""Plain Lightning classes that train on each other, most without seed, classes and input shape."""

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    def __init__(self, width: int = 8):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(7, width), torch.nn.Linear(width, 10))

    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.layers(batch[0].flatten(1)[:, :7]), batch[1])

    def validation_step(self, batch, index):
        self.log("val/loss", self.training_step(batch, index))

    def test_step(self, batch, index):
        self.log("test/loss", self.training_step(batch, index))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Needs(Model):
    def __init__(self, num_classes: int, input_shape: tuple[int, ...], seed: int = 5):
        super().__init__(num_classes)
        self.save_hyperparameters()
        self.told = num_classes, tuple(input_shape), seed


class HasDefault(Model):
    def __init__(self, num_classes: int = 4, activation: str = "swish"):
        super().__init__(num_classes)
        self.told = num_classes


class Data(pl.LightningDataModule):
    def __init__(self, size: int = 32):
        super().__init__()
        self.size = size

    def batches(self):
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(self.size, 7, generator=generator)
        return DataLoader(TensorDataset(images, torch.arange(self.size) % 4), 8)

    train_dataloader = val_dataloader = test_dataloader = batches


class Shaped(Data):
    def __init__(self, seed: int = 7):
        super().__init__()
        self.num_classes, self.input_shape, self.told = 4, [7], seed


class NotYet(Data):
    num_classes = None
    input_shape = (7,)
