"""The precisions in which a patch encoder may run, known without torch."""

# auto is float16 where the GPU is faster in it, else float32.
PRECISIONS = ("auto", "float32", "float16", "bfloat16")
