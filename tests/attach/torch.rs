//! PyTorch itself, with a script that knows nothing of litd.
