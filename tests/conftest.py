"""Settings of the whole suite."""

from hypothesis import settings

# A busy machine is slow now and then: that is no property of the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
