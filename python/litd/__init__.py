"""litd: tells the node's power-cap balancer what this training process's GPU does."""

__version__ = "0.1.0"
