"""Programs as public repositories write them: text in which `torch` is the only word to change. Each sets `result`."""

from __future__ import annotations

CLASSIFIER = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.bn = nn.BatchNorm2d(4)
        self.fc1 = nn.Linear(36, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.bn(self.conv1(x)))
        x = F.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, device, loader, optimizer):
    model.train()
    losses = []
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def test(model, device, loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    return test_loss, correct


use_cuda = torch.cuda.is_available()
torch.manual_seed(1)
torch.backends.cudnn.benchmark = True
device = torch.device("cuda" if use_cuda else "cpu")
model = Net()
model.load_state_dict({k: torch.tensor(v) for k, v in start.items()})
model = model.to(device)
x, y = torch.tensor(images), torch.tensor(labels)
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=False, num_workers=0, pin_memory=use_cuda)
optimizer = optim.Adadelta(model.parameters(), lr=1.0)
scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
result = []
for epoch in range(2):
    result += train(model, device, loader, optimizer)
    result += test(model, device, loader)
    scheduler.step()
print(f"Test loss {torch.tensor(result[-2]):.4f}, lr {scheduler.get_last_lr()[0]:.3f}, on {device.type}")
"""

LANGUAGE_MODEL = """
import math
from contextlib import nullcontext
import torch
import torch.nn as nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, n, heads, block):
        super().__init__()
        self.qkv = nn.Linear(n, 3 * n, bias=False)
        self.proj = nn.Linear(n, n)
        self.heads = heads
        self.register_buffer("mask", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Model(nn.Module):
    def __init__(self, vocab, n, block):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocab, n), wpe=nn.Embedding(block, n),
            h=nn.ModuleList([Attention(n, 2, block) for _ in range(2)]), ln_f=nn.LayerNorm(n),
        ))
        self.head = nn.Linear(n, vocab, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def configure_optimizers(self, weight_decay, lr):
        params = {n: p for n, p in self.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=False)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = x + block(x)
        logits = self.head(self.transformer.ln_f(x))
        if targets is None:
            return logits[:, [-1], :], None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx, n, top_k=None):
        for _ in range(n):
            logits, _ = self(idx[:, -8:])
            logits = logits[:, -1, :]
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            idx_next = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            idx = torch.cat((idx, idx_next), dim=1)
        return idx


device_type = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=torch.bfloat16)
model = Model(11, 8, 8)
model.load_state_dict({k: torch.tensor(v) for k, v in start.items()})
model.to(device_type)
scaler = torch.amp.GradScaler(device_type, enabled=False)
optimizer = model.configure_optimizers(0.1, 1e-2)
model = torch.compile(model) if compiled else model
data = torch.tensor(tokens, dtype=torch.long)
result = []
for step in range(4):
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * (step + 1) / 4
    X, Y = (torch.stack([data[i + s : i + s + 8] for i in range(0, 24, 8)]) for s in (0, 1))
    with ctx:
        logits, loss = model(X, Y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    result.append(loss.item())
assert model.generate(X[:1], 3, top_k=4).shape == (1, 11)
"""

POLICY = """
import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.utils.data import Dataset
from torch.autograd import Variable

policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
policy.load_state_dict({k: torch.FloatTensor(v) for k, v in start.items()})
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-2)
states = Variable(torch.from_numpy(observations).float())
actions = torch.LongTensor(chosen)
returns = torch.tensor(rewards, dtype=torch.float32)
returns = (returns - returns.mean()) / (returns.std() + 1e-8)
result = []
for _ in range(3):
    dist = Categorical(logits=policy(states))
    assert dist.sample().shape == torch.Size([len(chosen)])
    ratio = torch.exp(dist.log_prob(actions) - dist.log_prob(actions).detach())
    surrogate = torch.min(ratio * returns, torch.clamp(ratio, 0.8, 1.2) * returns)
    loss = -surrogate.mean() - 0.01 * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
result.append(Normal(torch.zeros(2), torch.ones(2)).log_prob(torch.zeros(2)).sum().item())
"""
