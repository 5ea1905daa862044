"""What a run says of itself: report, results page, model card and summary table, from its records alone."""
