"""Training runs: the Trainer, its callbacks, metrics, progress and checkpoints.

    >>> from pyflame.train import Accuracy, Trainer
    >>> trainer = Trainer(model, optimizer, loss_fn, train_data=loader, eval_data=test, metrics=[Accuracy()],
    ...                   max_epochs=5, checkpoint="run/checkpoints", log="run/log.jsonl")
    >>> trainer.fit()

`checkpoint.py` can be used without the rest: anything with state_dict and load_state_dict can be saved and restored.
"""

from pyflame.train.batch_size import BatchSize, find_batch_size
from pyflame.train.bpe import BytePairs
from pyflame.train.budget import TimeBudget
from pyflame.train.callbacks import (
    Callback,
    Checkpointing,
    EarlyStopping,
    JSONLLogger,
    LambdaCallback,
    LossCurve,
)
from pyflame.train.checkpoint import Checkpoint, CheckpointManager
from pyflame.train.corpus import Corpus, Windows, python_sources, read_corpus
from pyflame.train.metrics import F1, MAE, MSE, R2, Accuracy, MeanLoss, Metric, Perplexity, Precision, Recall
from pyflame.train.monitoring import MachineMonitor
from pyflame.train.probe import Probe
from pyflame.train.progress import Progress
from pyflame.train.random_state import RandomState
from pyflame.train.trainer import Fit, Trainer

__all__ = [
    "F1",
    "MAE",
    "MSE",
    "R2",
    "Accuracy",
    "BatchSize",
    "BytePairs",
    "Callback",
    "Checkpoint",
    "CheckpointManager",
    "Checkpointing",
    "Corpus",
    "EarlyStopping",
    "Fit",
    "JSONLLogger",
    "LambdaCallback",
    "LossCurve",
    "MachineMonitor",
    "MeanLoss",
    "Metric",
    "Perplexity",
    "Precision",
    "Probe",
    "Progress",
    "RandomState",
    "Recall",
    "TimeBudget",
    "Trainer",
    "Windows",
    "find_batch_size",
    "python_sources",
    "read_corpus",
]
