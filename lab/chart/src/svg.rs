//! Writes a drawn plot as part of a page, or as a file of its own.

use super::{
    Plot,
    draw::{FINE, GRID_HEX, INK_HEX, Picture},
};

/// The SVG for a page: in the page's own colours, light or dark, with a description in words. `number` makes
/// its ids unique.
pub fn inline_svg(plot: &Plot, number: usize) -> String {
    let picture = Picture::of(plot);
    let alt = escape(&plot.alt_text());
    let head = format!(
        "<svg class=\"plot\" role=\"img\" aria-labelledby=\"plot-{number}\" viewBox=\"0 0 {} {}\" xmlns=\"http://www.w3.org/2000/svg\">\n<title id=\"plot-{number}\">{alt}</title>",
        picture.width * FINE,
        picture.height * FINE,
    );
    let body = picture.body();
    // The grid becomes ink with a low opacity. plotters writes opacity and colour next to each other.
    let grid = format!("opacity=\"1\" stroke=\"{GRID_HEX}\"");
    head + &body.replace(&grid, "opacity=\"0.16\" stroke=\"currentColor\"").replace(INK_HEX, "currentColor")
}

/// The SVG of a file of its own: on white, sized in inches rather than in the fine units of the drawing.
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

impl Picture {
    /// The SVG without its opening tag, because each form has its own.
    fn body(&self) -> &str {
        self.svg.split_once("<svg").and_then(|(_, rest)| rest.split_once('>')).map_or("</svg>", |(_, body)| body)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
