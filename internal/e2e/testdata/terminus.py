"""Runs the recipe of an agent whose printing stumbles over what the engine says beside the ids.

vLLM gives every choice a stop_reason. Harbor keeps such fields as "extra", of another shape than the lists of ids and
logprobs that the recipe counts. Usage: as the recipe's, with its path before them.
"""

import runpy
import sys

from harbor.llms.lite_llm import LiteLLM

LiteLLM._extract_provider_extra = lambda self, response: None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
