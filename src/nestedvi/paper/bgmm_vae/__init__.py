"""Section 5.3: class proportions of mini-batches of images without labels."""
