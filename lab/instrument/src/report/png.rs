//! Renders a plot as a PNG from its SVG with the lab's own font, so that the two cannot differ.

use std::sync::Arc;

use chart::{Plot, svg_file};
use resvg::{tiny_skia, usvg};

/// The only font for PNGs; see `fonts/LICENSE`.
const FONT: &[u8] = include_bytes!("fonts/DejaVuSans-subset.ttf");
const FONT_NAME: &str = "DejaVu Sans";
/// Pixels of a PNG per pixel of the shown picture: sharp enough to print.
const PNG_SCALE: f32 = 2.0;

/// Renders a plot as a bitmap, or tells what failed.
pub fn png(plot: &Plot) -> Result<Vec<u8>, String> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family(FONT_NAME);
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(&svg_file(plot), &options).map_err(|error| error.to_string())?;
    let [width, height] = [tree.size().width(), tree.size().height()].map(|side| (side * PNG_SCALE).ceil() as u32);
    let mut pixels = tiny_skia::Pixmap::new(width, height).ok_or("it has no size")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(PNG_SCALE, PNG_SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use chart::{Axis, Kind, PlotPoint, Series, Shape};

    use super::*;

    #[test]
    fn a_png_has_text_in_it_without_a_font_of_the_system() {
        let points = (1..=9).map(|i| PlotPoint { x: f64::from(i), y: f64::from(i * i), interval: None }).collect();
        let mut plot = Plot {
            title: "Mean response time".to_owned(),
            subtitle: String::new(),
            x: Axis { label: "load".to_owned(), ..Axis::default() },
            y: Axis { label: "ms".to_owned(), ..Axis::default() },
            series: vec![Series { name: "nginx".to_owned(), kind: Kind::Measured(0), shape: Shape::Line, points }],
        };
        let with = png(&plot).unwrap();
        assert_eq!(with[..8], *b"\x89PNG\r\n\x1a\n");
        plot.title.clear();
        let without = png(&plot).unwrap();
        assert_ne!(with, without, "the title must show");
    }
}
