"""Digests of the pictures, tables and tweets that runs read, however their files store them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from actlab import experiments
from actlab.datamodules.images import ImageDataModule
from actlab.datamodules.pixels import PixelDataModule
from actlab.datamodules.table import TableDataModule
from actlab.datamodules.twitter_pos import TwitterPOSDataModule, windows
from actlab.errors import ActlabError


def digest_of(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest of the decoded data of a config.

    It covers the pixels of a picture, row by row, or the images or features and the labels of all
    splits. A word of a tweet has the features of its window. Another lossless format of the same
    data has the same digest.
    """
    # Gather the tensors in a fixed order
    data = experiments.data_of(config)
    if isinstance(data, PixelDataModule):
        tensors = [data.image.permute(1, 2, 0)]
    elif isinstance(data, ImageDataModule):
        by_name = data.images.tensors
        tensors = [by_name[name] for name in sorted(by_name)]
    elif isinstance(data, TableDataModule):
        by_name = data.table.tensors
        tensors = [by_name[name] for name in sorted(by_name)]
    elif isinstance(data, TwitterPOSDataModule):
        tensors = []
        corpus = data.corpus
        for tweets in (corpus.train, corpus.val, corpus.test):
            rows, labels = windows(tweets, corpus.features)
            tensors += [corpus.features.table[rows], labels]
    else:
        raise ActlabError(
            f"{type(data).__name__} has neither pictures nor a table nor tweets"
        )

    # The digest covers values, without names and shapes
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
