"""accelerate, without its launcher: every process contributes its rank plus one, and all print the sum.

    mingle run --job-id foo --world 4 --workers auto -- python3 sum.py
"""

import torch
from accelerate import Accelerator

# Without a GPU accelerate runs alone, silently, unless it is to use the CPU.
accelerator = Accelerator(cpu=not torch.cuda.is_available())
number = torch.ones(1, device=accelerator.device) * (accelerator.process_index + 1)
total = accelerator.reduce(number, reduction="sum")
print(f"rank {accelerator.process_index} of {accelerator.num_processes}: sum {total.item():g}", flush=True)
accelerator.end_training()
