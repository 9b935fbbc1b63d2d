//! A drawn plot as part of a page, as a file of its own, and as a PNG.

use std::sync::Arc;

use resvg::{tiny_skia, usvg};

use super::{
    Plot,
    draw::{FINE, GRID_HEX, INK_HEX, Picture},
};

/// The only font there is when a PNG is made; see `fonts/LICENSE`.
const FONT: &[u8] = include_bytes!("../fonts/DejaVuSans-subset.ttf");
const FONT_NAME: &str = "DejaVu Sans";
/// Pixels of a PNG for one of the shown picture: sharp enough to print.
const PNG_SCALE: f32 = 2.0;

/// For a page: in the page's own colours, light or dark, and with what it shows in words. `number` makes its ids unique.
pub fn inline_svg(plot: &Plot, number: usize) -> String {
    let picture = Picture::of(plot);
    let alt = escape(&plot.alt_text());
    let head = format!(
        "<svg class=\"plot\" role=\"img\" aria-labelledby=\"plot-{number}\" viewBox=\"0 0 {} {}\" xmlns=\"http://www.w3.org/2000/svg\">\n<title id=\"plot-{number}\">{alt}</title>",
        picture.width * FINE,
        picture.height * FINE,
    );
    let body = picture.body();
    // The grid is the ink, faintly; plotters writes opacity and colour side by side.
    let grid = format!("opacity=\"1\" stroke=\"{GRID_HEX}\"");
    head + &body.replace(&grid, "opacity=\"0.16\" stroke=\"currentColor\"").replace(INK_HEX, "currentColor")
}

/// A file of its own: on white, in inches of a page rather than in the fine units it is drawn in.
pub fn svg_file(plot: &Plot) -> String {
    let picture = Picture::of(plot);
    let (width, height) = (picture.width, picture.height);
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {} {}\" xmlns=\"http://www.w3.org/2000/svg\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>{}",
        width * FINE,
        height * FINE,
        escape(&plot.alt_text()),
        picture.body(),
    )
}

/// A picture of dots, or what went wrong.
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

impl Picture {
    /// Without the opening tag, which each form has its own of.
    fn body(&self) -> &str {
        self.svg.split_once("<svg").and_then(|(_, rest)| rest.split_once('>')).map_or("</svg>", |(_, body)| body)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
