"""Sixth station: a level's terms become a gradient. The only home of estimator algebra."""
