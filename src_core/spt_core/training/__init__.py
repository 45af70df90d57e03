"""What slide training and patch training stand on.

:mod:`run` is a training run from its first step to its last; all else here is a part of
it. Nothing in this folder knows slides or patches.
"""
