"""Reports of runs: run report, results page, model card and summary table, built from a run's records alone."""
