"""The interface of the mill to the operating system: files, processes, Java and the service
manager."""
