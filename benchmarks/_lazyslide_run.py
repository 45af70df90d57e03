"""Runs in LazySlide's own environment: encodes one slide and says how long it took."""

import json
import sys
import time
import warnings

import lazyslide
import numpy as np
import torch
from torchvision import transforms
from torchvision.models import mobilenet_v2
from wsidata import open_wsi

warnings.simplefilter("ignore")


class Features(torch.nn.Module):
    def __init__(self, weights: str) -> None:
        super().__init__()
        self.features = mobilenet_v2(weights=None).features
        self.load_state_dict(torch.load(weights, weights_only=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x).mean(dim=(2, 3))


def main() -> None:
    slide, weights, out, size = *sys.argv[1:4], int(sys.argv[4])
    model = Features(weights).eval()
    transform = transforms.Compose(
        [
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    # The slide is tissue all over, so that both encode the same lattice.
    for line in sys.stdin:
        workers = int(line)
        wsi = open_wsi(slide)
        lazyslide.pp.tile_tissues(
            wsi, size, mpp=0.5, tissue_key=None, background_filter=False
        )
        start = time.perf_counter()
        x = lazyslide.tl.feature_extraction(
            wsi,
            model,
            model_name="mobilenet",
            transform=transform,
            device="cpu",
            num_workers=workers,
            pbar=False,
            return_features=True,
        )
        seconds = time.perf_counter() - start
        bounds = wsi.shapes["tiles"].bounds.to_numpy()
        np.savez(out, x=x, xy=bounds[:, :2].round().astype(int))
        answer = {
            "seconds": seconds,
            "patches": len(x),
            "version": lazyslide.__version__,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
