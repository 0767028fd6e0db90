"""What a computer gives: devices, processes, threads, seeds, files and packages."""
