"""Files of images: read, checked, fetched once. They refuse to know any model."""
