"""What every window, command, report and file says of its use."""

NOT_FOR_DIAGNOSIS = "For research, not for diagnosis."
