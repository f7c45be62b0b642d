"""Request → frames. No sockets, no dialects."""

import logging
import os
import warnings

# What torch and vLLM have to say when they are imported helps nobody who wants to speak.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
logging.getLogger("torch._library.triton").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=FutureWarning, module="vllm.triton_utils")
