"""The pages: plain HTML made here, in the look of the report."""
