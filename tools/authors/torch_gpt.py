#!/usr/bin/env python3
"""Times GPT-2 in PyTorch on a GPU, for comparison with `./aisc bench gpu`.

usage: tools/authors/torch_gpt.py [--batch N] [--context N] [--layers N] [--width N] [--heads N]
                          [--precision bf16|autocast] [--steps N] [--no-compile]

The same model: fused qkv, tied head with the table padded to 50304 rows, GELU in its tanh form, no
dropout; the same step: clipping of the global norm, AdamW (fused). Attention is
scaled_dot_product_attention, the model is compiled (torch.compile). `bf16`, the default: weights,
activations and gradients in BF16 as in this project's runs, AdamW's moments in BF16, too, without
master weights, so that it moves fewer bytes than ours. `autocast`: weights in F32, products in
BF16. Prints one JSON object a line, as it goes; a time is the median of several, in seconds.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lab.flags import number  # noqa: E402

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as missing:
    sys.exit(f"torch_gpt: PyTorch is not installed ({missing}): nothing to compare with")


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for y in self.qkv(self.norm1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(B, T, C))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, rows, context):
        super().__init__()
        self.table, self.positions = nn.Embedding(rows, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for weight in self.parameters():  # N(0, 1) of nn.Embedding, tied to the head, is far off
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        T = tokens.shape[1]
        x = self.table(tokens) + self.positions(torch.arange(T, device=tokens.device))
        logits = F.linear(self.norm(self.blocks(x)), self.table.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def seconds_of(work, repetitions, warmup=3, runs=1):
    times = []
    for i in range(warmup + repetitions):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(runs):
            work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / runs)
    return statistics.median(times[warmup:])


def say(**found):
    print(json.dumps(found), flush=True)


def measure_parts(args):
    B, T, C, H = args.batch, args.context, args.width, args.heads
    with torch.no_grad():
        x = torch.randn(131072, C, device="cuda", dtype=torch.bfloat16)
        norm = nn.LayerNorm(C, device="cuda", dtype=torch.bfloat16)
        seconds = seconds_of(lambda: norm(x), 7, runs=10)
        say(layer_norm_rows=x.shape[0], layer_norm_seconds=seconds,
            layer_norm_bytes_per_second=2 * x.nbytes / seconds)
    weight = torch.randn(124475904, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight.grad = torch.randn_like(weight)
    optimizer = torch.optim.AdamW([weight], lr=1e-6, fused=True)
    say(adamw_elements=weight.numel(), adamw_state="bf16 without master weights",
        adamw_seconds=seconds_of(optimizer.step, 7, runs=3))
    del weight, optimizer, x
    q, k, v = (torch.randn(B, H, T, C // H, device="cuda", dtype=torch.bfloat16,
                           requires_grad=True) for _ in range(3))
    dout = torch.randn_like(q)

    def attention():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        torch.autograd.grad(attention(), (q, k, v), dout)

    with torch.no_grad():
        forward = seconds_of(attention, 7, runs=10)
    whole, product = seconds_of(both, 7, runs=10), B * T * T * C
    say(attention_forward_seconds=forward, attention_forward_backward_seconds=whole,
        attention_forward_flops_per_second=2 * product / forward,
        attention_forward_backward_flops_per_second=7 * product / whole)


def measure_step(args):
    torch.manual_seed(1)
    model = Gpt(args.layers, args.width, args.heads, 50304, args.context).cuda()
    if args.precision == "bf16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    run = model if args.no_compile else torch.compile(model)
    tokens, targets = torch.randint(0, 50257, (2, args.batch, args.context), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.precision == "autocast"):
            loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - begin  # compiles
    seconds = seconds_of(step, args.steps)
    say(step_seconds=seconds, tokens_per_second=args.batch * args.context / seconds,
        batch=args.batch, context=args.context, precision=args.precision,
        compiled=not args.no_compile, first_step_seconds=first,
        peak_bytes=torch.cuda.max_memory_allocated())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("batch", 32), ("context", 1024), ("layers", 12), ("width", 768),
                          ("heads", 12), ("steps", 10)):
        parser.add_argument("--" + name, type=number(1, 1 << 30), default=default)
    parser.add_argument("--precision", choices=["bf16", "autocast"], default="bf16")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch_gpt: PyTorch sees no GPU: nothing to compare with")
    say(peer="PyTorch " + torch.__version__, device=torch.cuda.get_device_name())
    measure_parts(args)
    measure_step(args)


if __name__ == "__main__":
    main()
