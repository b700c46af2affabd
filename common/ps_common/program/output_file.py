"""Output files that flags name: whether they can be written is checked before the work begins."""

from pathlib import Path

from ps_common.errors import SettingsError


def check_output(flag: str, path: Path | None, *, suffix: str = "") -> None:
    """
    Make the folder of the file, and check that the file can be written and ends in `suffix`. None needs no check.

    Raises SettingsError.
    """
    if path is None:
        return
    if suffix and path.suffix.lower() != suffix:
        example = path.with_suffix(suffix) if path.suffix else path / f"game{suffix}"
        raise SettingsError(f"{flag} {path}: must name a file that ends in {suffix}, for example {example}")
    if path.exists() and not path.is_dir() and not path.is_file():
        return  # a device or a pipe: opening it may block
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise SettingsError(f"{flag} {path}: cannot be written: {error.strerror}") from error
