"""Tests of passes and of the compiler's commands: a .mlir file says in RUN lines what to run and what FileCheck must find."""
import os

import lit.formats

config.name = "tcc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = lit_config.params["exec"]
config.environment["PATH"] = os.pathsep.join([lit_config.params["bin"], "/usr/lib/llvm-22/bin", config.environment["PATH"]])
