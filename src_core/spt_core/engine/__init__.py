"""The engine: a process beside the window that does all work with torch.

``python -m spt_core.engine --folder FOLDER`` reads requests from its input and answers
on its output, one JSON object a line; arrays go through files in ``FOLDER``.
"""
