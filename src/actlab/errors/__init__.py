"""The errors of actlab; `actlab.errors.messages` writes the texts of their messages."""


class ActlabError(Exception):
    """Raised for bad input. The message states the value, the allowed values and the remedy.

    ``actlab`` prints it as one line and exits with code 2; in a script it is an ordinary exception.
    """


class RunError(ActlabError):
    """Raised for an error that ends one run; the other runs of a study can still be trained."""


class LostDeviceError(ActlabError):
    """Raised if an accelerator has failed, so that no later call of this process succeeds on it."""
