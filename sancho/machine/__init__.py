"""What a computer gives: device, processes, seeds, files, network. Nothing here knows a model."""
