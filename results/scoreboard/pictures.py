"""Write the further pictures of the scoreboard, 128 × 128 pixels: a photograph, text, a texture.

    python results/scoreboard/pictures.py pictures

The photograph is a portrait of Grace Hopper by the United States Navy, in the public domain, which
comes with matplotlib; the page is set in DejaVu Sans, which comes with matplotlib too; the texture
is noise of few wave lengths, by a fixed seed.
"""

import hashlib
import sys
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE = 128  # pixels
DATA = Path(matplotlib.get_data_path())
WORDS = (
    "All happy families\nare alike; each un-\nhappy family is un-\nhappy in its own way.\n"
    "0123456789 + − × ÷ =\nABCDEFGHIJKLMNOP\nQRSTUVWXYZ & (?!) §\nαβγδεζηθ ∂u/∂x = f"
)


def photograph() -> Image.Image:
    """Return the upper square of the portrait."""
    with Image.open(DATA / "sample_data/grace_hopper.jpg") as image:
        width, _ = image.size
        return (
            image.convert("RGB")
            .crop((0, 0, width, width))
            .resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        )


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


def chance(pixels: np.ndarray) -> float:
    """Return the PSNR of the training pixels' mean colour on test pixels; see `PixelDataModule`."""
    colours = pixels.astype(float) / 255
    rows, columns = np.indices(colours.shape[:2])
    trained, tested = (rows + columns) % 2 == 0, ((rows + columns) % 2 == 1) & (rows % 2 == 1)
    return float(-10 * np.log10(np.square(colours[tested] - colours[trained].mean(0)).mean()))


def main(folder: Path) -> None:
    """Write the pictures, and print what identifies their pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    for image, name in ((photograph(), "photograph"), (page(), "page"), (texture(), "texture")):
        image.save(folder / f"{name}.png")
        pixels = np.asarray(image)
        digest = hashlib.sha256(pixels.tobytes()).hexdigest()
        print(f"{name}.png: mean colour {chance(pixels):.2f} dB, sha256 of the pixels {digest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
