"""The error that means "the input is wrong", with a sentence for the person."""


class InputError(ValueError):
    """What a user gave cannot be used; the message says what, where and what to do.

    The command prints the message without a traceback and the window shows it as a
    notification. Every other exception is a defect of ours and keeps its traceback.
    """
