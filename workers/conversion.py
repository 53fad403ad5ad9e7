"""A GGUF file as a folder of safetensors, which is the one format that jobs load. Run as a program:

    python -m workers.conversion FILE FOLDER

Quantised weights become plain ones in bfloat16, once: nothing of a pass then depends on what else
is in it. Tokenizer and chat template come from the same file. Nothing of the file is run. Each line
on standard output is a step done, of STEPS; an error is one line on standard error and exit code 1.
"""

import os
import sys
from pathlib import Path
from typing import Any

from workers import networks, weights

STEPS = ("the tokenizer is read", "the weights are read", "the weights are written")


def convert(file: Path, folder: Path) -> None:
    """Write model and tokenizer of a GGUF file to a folder.

    Raises ModelError if weights are missing, unused or not finite, else what the libraries raise.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    AutoTokenizer.from_pretrained(file.parent, **where).save_pretrained(folder)
    print(STEPS[0], flush=True)
    opened: Any = AutoModelForCausalLM.from_pretrained(
        file.parent, dtype=torch.bfloat16, output_loading_info=True, **where
    )
    read, tensors = opened
    networks.check_complete(read, tensors)
    print(STEPS[1], flush=True)
    # transformers takes a model that was read from GGUF for a quantised one still, and saves none
    # of those.
    plain = {
        name: value
        for name, value in read.config.to_dict().items()
        if name != "quantization_config"
    }
    fresh = AutoModelForCausalLM.from_config(
        type(read.config).from_dict(plain), dtype=torch.bfloat16
    )
    fresh.load_state_dict(read.state_dict())
    fresh.save_pretrained(folder)
    weights.check_finite(weights.tensors(folder))
    print(STEPS[2], flush=True)


def main() -> None:
    """The program."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    file, folder = map(Path, sys.argv[1:])
    try:
        convert(file, folder)
    except Exception as error:  # the libraries name no base of what they raise; the file is public
        sys.exit(
            f"{type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        )


if __name__ == "__main__":
    main()
