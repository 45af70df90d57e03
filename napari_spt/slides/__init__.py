"""Opening slides in napari: the reader, the dialog, the samples."""
