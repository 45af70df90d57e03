"""The names inside a feature file, in one place for its readers and its writers.

The file is what TRIDENT and CLAM write (``features`` and ``coords`` with attributes on
``coords``), with our additions: ``g_rc`` and attributes on the file itself.
"""

OURS = "napari-spt"  # who wrote a file, where it is ours
ENDING = ".h5"
PARTIAL_ENDING = ".h5.partial"

# datasets
FEATURES = "features"  # (n, d) float32 or float16, rows sorted by grid (row, col)
COORDS = "coords"  # (n, 2) int64, level-0 (x, y) of each patch's top left corner
GRID = "g_rc"  # (n, 2) int64, grid (row, col)

# attributes of COORDS, as TRIDENT names them
PATCH_SIZE = "patch_size"  # pixels the encoder saw
PATCH_SIZE_L0 = "patch_size_level0"  # the same in level-0 pixels
PATCH_SIZE_L0_X = "patch_size_level0_x"  # beside it, where the axes differ
PATCH_SIZE_L0_Y = "patch_size_level0_y"
L0_MAGNIFICATION = "level0_magnification"
TARGET_MAGNIFICATION = "target_magnification"
OVERLAP = "overlap"  # pixels at the target magnification
NAME = "name"
L0_WIDTH = "level0_width"
L0_HEIGHT = "level0_height"

# attributes of the file, ours
SPT_VERSION = "spt_version"
ENCODER = "encoder"
ENCODER_SHA256 = "encoder_sha256"
MPP = "mpp"  # micrometres per pixel of the patch as the encoder saw it
PATCH_UM = "patch_um"  # side of a patch in micrometres
STAIN = "stain"
STAIN_DONE = "stain_done"  # what that came to on this slide
CHANNELS = "channels"  # what was seen as red, green and blue
CHANNELS_DONE = "channels_done"  # how this slide's were stretched for it
SLIDE_FINGERPRINT = "slide_fingerprint"
SCANNER = "scanner"  # maker, model, objective and pixel size, as far as stated
GRID_ORIGIN = "grid_origin"  # (row, col): the full grid's minimum
HAS_POSITIONS = "has_positions"  # stated, as False, only where they are unknown
