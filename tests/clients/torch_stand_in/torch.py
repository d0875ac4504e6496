"""In place of PyTorch, which guidellm imports for the iterator over its prompts alone: 5 GB for what stands here.

On PYTHONPATH of guidellm_test.py; nothing else sees it. It knows the names that guidellm takes and no others, so a
version that wants more of PyTorch fails. `make clients` runs the same test with PyTorch.
"""
import sys
import types
import typing

__version__ = "0"  # too old for transformers, which then does without
Item = typing.TypeVar("Item")


class Generator:
    """Draws nothing: nothing is shuffled."""

    def manual_seed(self, seed):
        return self


class IterableDataset(typing.Generic[Item]):
    pass


class DataLoader(typing.Generic[Item]):
    """Hands out batches of one, in order, from this process instead of `num_workers` others."""

    def __init__(self, *, dataset, batch_size, shuffle, collate_fn, num_workers, prefetch_factor, generator):
        if batch_size != 1 or shuffle:
            raise NotImplementedError("only batches of one in order; to have others: make clients, with PyTorch")
        self.dataset, self.collate_fn = dataset, collate_fn

    def __iter__(self):
        return (self.collate_fn([item]) for item in self.dataset)


utils = types.ModuleType("torch.utils")
utils.data = types.ModuleType("torch.utils.data")
utils.data.get_worker_info = lambda: None  # what it is outside a worker
utils.data.dataloader = types.ModuleType("torch.utils.data.dataloader")
utils.data.dataloader.DataLoader = DataLoader
utils.data.dataset = types.ModuleType("torch.utils.data.dataset")
utils.data.dataset.IterableDataset = utils.data.IterableDataset = IterableDataset
for module in (utils, utils.data, utils.data.dataloader, utils.data.dataset):
    sys.modules[module.__name__] = module
