"""The one line that stands in every report, command and window."""

NOT_FOR_DIAGNOSIS = "For research, not for diagnosis."
