"""What ``doctor`` looks at: this installation, the Java it runs on, the machine, and three documents sent through all of it."""
