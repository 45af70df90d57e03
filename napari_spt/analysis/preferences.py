"""What the dock remembers from one session to the next."""

from napari_spt.analysis.map_settings import MapSettings
from napari_spt.analysis.state import AnalysisState, Options
from napari_spt.parts.settings import remember, remembered


def remembered_view() -> MapSettings:
    kept = remembered("view", {})
    return MapSettings(
        opacity=int(kept.get("opacity", 70)) / 100,
        kinds_opacity=int(kept.get("kinds_opacity", 50)) / 100,
        smoothing=int(kept.get("smoothing", 0)) / 10,
        hides_weak=bool(kept.get("hides_weak", False)),
    )


def remembered_options() -> Options:
    kept = remembered("advanced", {})
    return Options(
        encoder=kept.get("encoder"),
        device=kept.get("device"),
        stain=kept.get("stain"),
        batch_size=kept.get("batch") or None,
        room_gb=int(kept.get("room_gb", Options().room_gb)),
    )


def keep(state: AnalysisState) -> None:
    view, options = state.view, state.options
    remember(
        "view",
        {
            "opacity": round(100 * view.opacity),
            "kinds_opacity": round(100 * view.kinds_opacity),
            "smoothing": round(10 * view.smoothing),
            "hides_weak": view.hides_weak,
        },
    )
    remember(
        "advanced",
        {
            "encoder": options.encoder,
            "device": options.device,
            "stain": options.stain,
            "batch": options.batch_size,
            "room_gb": options.room_gb,
        },
    )
