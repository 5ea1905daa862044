"""The errors a user can meet. A message says what is wrong, with the value; what is allowed; what to do."""


class TransencoderError(Exception):
    """Base of all errors that are the user's to solve; the command line prints them without a traceback."""


class InputError(TransencoderError):
    """Bad data or a bad option. Exit code 2."""


class RunError(TransencoderError):
    """Trouble with a run folder: locked, damaged, or no space left. Exit code 3."""


class RunInUseError(RunError):
    """Another process works on the run folder."""
