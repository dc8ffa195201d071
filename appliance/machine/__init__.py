"""The operating system as the mill uses it: files, processes, Java and the service manager."""
