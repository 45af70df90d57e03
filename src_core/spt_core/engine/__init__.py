"""The engine: a process beside the window that does all work with torch.

``python -m spt_core.engine --folder FOLDER`` takes the messages of
:mod:`~spt_core.engine.protocol` from its input and replies on its output, one line of
JSON each; arrays go through files in ``FOLDER``.
:class:`~spt_core.engine.client.EngineClient` is the other end of the pipe.
"""
