//! Draws a plot's numbers as SVG.

use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Kind, Plot, PlotPoint, Series, Shape, axis::Scale};

/// Colours that become the page's own when the plot is part of a page.
const INK: RGBColor = RGBColor(0x1B, 0x1B, 0x1B);
pub(super) const INK_HEX: &str = "#1B1B1B";
const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
pub(super) const GRID_HEX: &str = "#DDDDDD";

/// Lines of the ideals: dashed and dotted. plotters would draw every dash as its own element. These colours
/// look like the ink; after drawing they are replaced by the ink and a dash pattern.
const IDEAL: [(RGBColor, &str, &str); 2] =
    [(RGBColor(0x1B, 0x1B, 0x1C), "#1B1B1C", "28 16"), (RGBColor(0x1B, 0x1B, 0x1D), "#1B1B1D", "8 12")];

/// The colours of Okabe and Ito, which most people can tell apart. Their yellow is left out, because it is
/// too light for lines.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
];

/// Backend units in a pixel of the shown picture. plotters rounds positions to whole units, so the units are
/// small enough to hide that.
pub(super) const FINE: i32 = 4;
/// Size of the shown picture in pixels, without its legend.
const WIDTH: i32 = 860;
const HEIGHT: i32 = 470;
const MARGINS: Margins = Margins { left: 82, right: 22, top: 56, bottom: 62 };
const TEXT: i32 = 13;
/// Average width of a letter of [`TEXT`] in pixels. There is no font to measure.
const LETTER: i32 = 7;

struct Margins {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Pixel = (i32, i32);

/// The drawn picture as SVG, and its size in pixels.
pub(super) struct Picture {
    pub(super) svg: String,
    pub(super) width: i32,
    pub(super) height: i32,
}

impl Picture {
    pub(super) fn of(plot: &Plot) -> Self {
        let rows = legend_rows(&plot.series);
        let height = HEIGHT + 20 * rows.len() as i32;
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, ((WIDTH * FINE) as u32, (height * FINE) as u32));
            // Writing to a string cannot fail.
            let _ = Painter::new(plot).paint(&root.into_drawing_area(), &rows);
        }
        for (_, hex, dashes) in IDEAL {
            let dashed = format!("stroke=\"{INK_HEX}\" stroke-dasharray=\"{dashes}\"");
            svg = svg.replace(&format!("stroke=\"{hex}\""), &dashed);
        }
        Self { svg, width: WIDTH, height }
    }
}

struct Painter<'a> {
    plot: &'a Plot,
    x: Scale,
    y: Scale,
    /// Series drawn as bars, which share the width of a category.
    bars: Vec<Kind>,
}

impl<'a> Painter<'a> {
    fn new(plot: &'a Plot) -> Self {
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let ends = |point: &PlotPoint| point.interval.map_or([point.y, point.y], |(low, high)| [low, high]);
        Self {
            x: Scale::new(&plot.x, points().map(|point| point.x), false),
            y: Scale::new(&plot.y, points().flat_map(|point| ends(point).into_iter().chain([point.y])), true),
            bars: plot.series.iter().filter(|series| series.shape == Shape::Bars).map(|series| series.kind).collect(),
            plot,
        }
    }

    fn paint(&self, root: &Area<'_>, legend: &[Vec<&Series>]) -> Drawn {
        let plot_area = root.margin(
            MARGINS.top * FINE,
            (MARGINS.bottom + 20 * legend.len() as i32) * FINE,
            MARGINS.left * FINE,
            MARGINS.right * FINE,
        );
        let chart =
            ChartBuilder::on(&plot_area).build_cartesian_2d(self.x.from..self.x.until, self.y.from..self.y.until)?;
        self.grid(root, &chart)?;
        self.frame(root, &chart)?;
        self.texts(root, &chart)?;
        for series in &self.plot.series {
            self.series(root, &chart, series)?;
        }
        self.legend(root, legend)
    }

    /// Draws a faint line at each tick. Categories on the x axis have none.
    fn grid(&self, root: &Area<'_>, chart: &Chart<'_, '_>) -> Drawn {
        let line = |from: (f64, f64), until: (f64, f64)| {
            let ends = vec![chart.backend_coord(&from), chart.backend_coord(&until)];
            root.draw(&PathElement::new(ends, GRID.stroke_width(FINE as u32)))
        };
        self.y.ticks.iter().try_for_each(|&y| line((self.x.from, y), (self.x.until, y)))?;
        let numbers = self.plot.x.categories.is_empty();
        self.x.ticks.iter().filter(|_| numbers).try_for_each(|&x| line((x, self.y.from), (x, self.y.until)))
    }

    /// Draws axes along the left and the bottom.
    fn frame(&self, root: &Area<'_>, chart: &Chart<'_, '_>) -> Drawn {
        let corner = |x, y| chart.backend_coord(&(x, y));
        let line = vec![
            corner(self.x.from, self.y.until),
            corner(self.x.from, self.y.from),
            corner(self.x.until, self.y.from),
        ];
        root.draw(&PathElement::new(line, ink(1)))
    }

    fn texts(&self, root: &Area<'_>, chart: &Chart<'_, '_>) -> Drawn {
        let plot = self.plot;
        let title = if plot.subtitle.is_empty() { 34 } else { 20 };
        write(root, &plot.title, (MARGINS.left, title), 16, HPos::Left, VPos::Center)?;
        write(root, &plot.subtitle, (MARGINS.left, 40), TEXT, HPos::Left, VPos::Center)?;
        for &tick in &self.y.ticks {
            let (x, y) = chart.backend_coord(&(self.x.from, tick));
            let label = self.y.label(tick, &plot.y);
            write(root, &label, (x / FINE - 7, y / FINE), TEXT, HPos::Right, VPos::Center)?;
        }
        let room = (WIDTH - MARGINS.left - MARGINS.right) / self.x.ticks.len().max(1) as i32;
        for &tick in &self.x.ticks {
            let (x, y) = chart.backend_coord(&(tick, self.y.from));
            let label = self.x.label(tick, &plot.x);
            let lines = if plot.x.categories.is_empty() { vec![label] } else { wrap(&label, room / (LETTER - 1)) };
            for (line, text) in lines.iter().enumerate() {
                let size = if plot.x.categories.is_empty() { TEXT } else { TEXT - 2 };
                write(root, text, (x / FINE, y / FINE + 8 + 13 * line as i32), size, HPos::Center, VPos::Top)?;
            }
        }
        let middle = MARGINS.left + (WIDTH - MARGINS.left - MARGINS.right) / 2;
        write(root, &plot.x.label, (middle, HEIGHT - 12), TEXT, HPos::Center, VPos::Center)?;
        let upright = text_style(TEXT, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
        let height = MARGINS.top + (HEIGHT - MARGINS.top - MARGINS.bottom) / 2;
        root.draw(&Text::new(plot.y.label.clone(), (16 * FINE, height * FINE), upright))
    }

    fn series(&self, root: &Area<'_>, chart: &Chart<'_, '_>, series: &Series) -> Drawn {
        let width = chart.backend_coord(&(1.0, self.y.from)).0 - chart.backend_coord(&(0.0, self.y.from)).0;
        // Intervals of several subjects at the same x are drawn side by side.
        let subjects: Vec<Kind> = self.plot.series.iter().map(|series| series.kind).filter(Kind::is_measured).collect();
        let dodge = match subjects.iter().position(|&kind| kind == series.kind) {
            Some(place) if series.shape == Shape::Line && series.points.iter().any(|p| p.interval.is_some()) => {
                (2 * place as i32 + 1 - subjects.len() as i32) * 3 * FINE / 2
            }
            _ => 0,
        };
        let mut drawn: Vec<(Pixel, Option<(i32, i32)>)> = Vec::new();
        for point in &series.points {
            let (Some(x), Some(y)) = (self.x.place(point.x), self.y.place(point.y)) else { continue };
            let (at_x, at_y) = chart.backend_coord(&(x, y));
            let end = |value| chart.backend_coord(&(x, self.y.place_cut(value))).1;
            let at_x = at_x + dodge + self.offset(series, width);
            drawn.push(((at_x, at_y), point.interval.map(|(low, high)| (end(low), end(high)))));
        }
        let foot = chart.backend_coord(&(self.x.from, self.y.place_cut(0.0))).1;
        match (series.shape, series.kind) {
            (Shape::Bars, _) => {
                let half = self.bar_width(width) / 2;
                for &((x, y), _) in &drawn {
                    let fill = colour(series.kind).mix(0.85).filled();
                    root.draw(&Rectangle::new([(x - half, y), (x + half, foot)], fill))?;
                }
                whiskers(root, &drawn, INK)
            }
            (Shape::Marks, Kind::Ideal(number)) => {
                let half = width * 2 / 5;
                drawn.iter().try_for_each(|&((x, y), _)| dashed(root, vec![(x - half, y), (x + half, y)], number))
            }
            (Shape::Line, Kind::Ideal(number)) => dashed(root, drawn.iter().map(|&(at, _)| at).collect(), number),
            (Shape::Line, kind) => {
                let line: Vec<Pixel> = drawn.iter().map(|&(at, _)| at).collect();
                // A line of many values is drawn thinner, so that other lines remain visible behind it.
                let width = if line.len() > 100 { 5 * FINE as u32 / 4 } else { 2 * FINE as u32 };
                root.draw(&PathElement::new(line, colour(kind).stroke_width(width)))?;
                whiskers(root, &drawn, colour(kind))?;
                // A line of many values has only some markers, at other values than its neighbours.
                let every = drawn.len().div_ceil(14).max(1);
                let shift = if let Kind::Measured(number) = kind { number * every / 3 } else { 0 };
                drawn.iter().skip(shift % every).step_by(every).try_for_each(|&(at, _)| marker(root, at, kind))
            }
            (Shape::Marks, kind) => {
                // Beside bars, the position shows the subject, and the subject's colour would not be visible
                // on its bar.
                let colour = if self.bars.is_empty() { colour(kind) } else { INK };
                whiskers(root, &drawn, colour)?;
                drawn.iter().try_for_each(|&((x, y), ends)| match ends {
                    // A published range has no published middle, so both ends are marked.
                    Some((low, high)) => [low, high].into_iter().try_for_each(|y| diamond(root, (x, y), colour)),
                    None => diamond(root, (x, y), colour),
                })
            }
        }
    }

    fn bar_width(&self, place: i32) -> i32 {
        (place * 4 / 5 / self.bars.len().max(1) as i32).min(90 * FINE)
    }

    /// Offset from the middle of its category for a bar, and for the published value of the bar's subject.
    fn offset(&self, series: &Series, place: i32) -> i32 {
        let (kind, aside) = match series.kind {
            Kind::Published(number) => (Kind::Measured(number), self.bar_width(place) / 4),
            kind => (kind, 0),
        };
        let Some(number) = self.bars.iter().position(|&bar| bar == kind) else { return 0 };
        let width = self.bar_width(place);
        (2 * number as i32 + 1 - self.bars.len() as i32) * width / 2 + aside
    }

    /// Draws the legend below the plot, in rows.
    fn legend(&self, root: &Area<'_>, rows: &[Vec<&Series>]) -> Drawn {
        for (number, row) in rows.iter().enumerate() {
            let y = HEIGHT + 8 + 20 * number as i32;
            let mut x = MARGINS.left;
            for series in row {
                let fine = |x: i32| (x * FINE, y * FINE);
                match (series.shape, series.kind) {
                    (Shape::Bars, kind) => {
                        let corners = [(x * FINE + 8 * FINE, (y - 5) * FINE), ((x + 20) * FINE, (y + 5) * FINE)];
                        root.draw(&Rectangle::new(corners, colour(kind).mix(0.85).filled()))?;
                    }
                    (_, Kind::Ideal(number)) => dashed(root, vec![fine(x), fine(x + 28)], number)?,
                    (Shape::Line, kind) => {
                        let style = colour(kind).stroke_width(2 * FINE as u32);
                        root.draw(&PathElement::new(vec![fine(x), fine(x + 28)], style))?;
                        marker(root, fine(x + 14), kind)?;
                    }
                    (Shape::Marks, kind) => {
                        diamond(root, fine(x + 14), if self.bars.is_empty() { colour(kind) } else { INK })?;
                    }
                }
                write(root, &series.name, (x + 34, y), TEXT, HPos::Left, VPos::Center)?;
                x += legend_width(series);
            }
        }
        Ok(())
    }
}

fn legend_width(series: &Series) -> i32 {
    34 + LETTER * series.name.chars().count() as i32 + 18
}

/// Fills the rows of the legend with as many series as fit.
fn legend_rows(series: &[Series]) -> Vec<Vec<&Series>> {
    let mut rows: Vec<Vec<&Series>> = Vec::new();
    let mut left = 0;
    for series in series {
        let width = legend_width(series);
        match rows.last_mut() {
            Some(row) if width <= left => row.push(series),
            _ => {
                rows.push(vec![series]);
                left = WIDTH - MARGINS.left;
            }
        }
        left -= width;
    }
    rows
}

fn colour(kind: Kind) -> RGBColor {
    match kind {
        Kind::Measured(number) | Kind::Published(number) => COLOURS[number % COLOURS.len()],
        Kind::Ideal(_) => INK,
    }
}

fn ink(pixels: i32) -> ShapeStyle {
    INK.stroke_width((pixels * FINE) as u32)
}

/// Draws a line of an ideal: dashed for the first, dotted for the second.
fn dashed(root: &Area<'_>, line: Vec<Pixel>, number: usize) -> Drawn {
    root.draw(&PathElement::new(line, IDEAL[number % IDEAL.len()].0.stroke_width(7 * FINE as u32 / 4)))
}

fn whiskers(root: &Area<'_>, points: &[(Pixel, Option<(i32, i32)>)], colour: RGBColor) -> Drawn {
    let style = colour.stroke_width(5 * FINE as u32 / 4);
    let cap = 4 * FINE;
    for &((x, _), ends) in points {
        let Some((low, high)) = ends else { continue };
        root.draw(&PathElement::new(vec![(x, low), (x, high)], style))?;
        for y in [low, high] {
            root.draw(&PathElement::new(vec![(x - cap, y), (x + cap, y)], style))?;
        }
    }
    Ok(())
}

/// Corners around the middle of a marker, in quarters of its radius.
const DIAMOND: [(i32, i32); 4] = [(0, -6), (6, 0), (0, 6), (-6, 0)];

fn polygon((x, y): Pixel, corners: &[(i32, i32)]) -> Vec<Pixel> {
    corners.iter().map(|&(dx, dy)| (x + dx * FINE, y + dy * FINE)).collect()
}

/// Draws the hollow marker of a published value.
fn diamond(root: &Area<'_>, at: Pixel, colour: RGBColor) -> Drawn {
    let mut outline = polygon(at, &DIAMOND);
    outline.push(outline[0]);
    root.draw(&PathElement::new(outline, colour.stroke_width(2 * FINE as u32)))
}

/// Draws the marker of a subject.
fn marker(root: &Area<'_>, at: Pixel, kind: Kind) -> Drawn {
    let (Kind::Measured(number) | Kind::Ideal(number) | Kind::Published(number)) = kind;
    let r = 4 * FINE;
    let polygon = |corners: &[(i32, i32)]| polygon(at, corners);
    let fill = colour(kind).filled();
    match number % 6 {
        0 => root.draw(&Circle::new(at, r, fill)),
        1 => root.draw(&Polygon::new(polygon(&[(-4, -4), (4, -4), (4, 4), (-4, 4)]), fill)),
        2 => root.draw(&Polygon::new(polygon(&[(0, -5), (5, 4), (-5, 4)]), fill)),
        3 => root.draw(&Polygon::new(polygon(&DIAMOND), fill)),
        4 => root.draw(&Polygon::new(polygon(&[(0, 5), (5, -4), (-5, -4)]), fill)),
        _ => root.draw(&Cross::new(at, r, colour(kind).stroke_width(2 * FINE as u32))),
    }
}

fn write(root: &Area<'_>, text: &str, (x, y): Pixel, size: i32, h: HPos, v: VPos) -> Drawn {
    if text.is_empty() {
        return Ok(());
    }
    root.draw(&Text::new(text.to_owned(), (x * FINE, y * FINE), text_style(size, h, v)))
}

fn text_style(size: i32, h: HPos, v: VPos) -> TextStyle<'static> {
    // plotters divides the given size by 1.24.
    let size = f64::from(size * FINE) * 1.24;
    TextStyle::from(("sans-serif", size).into_font()).color(&INK).pos(Pos::new(h, v))
}

/// Breaks a text into at most three lines of at most `letters`, at spaces and after commas and colons. The
/// last line is cut off.
fn wrap(text: &str, letters: i32) -> Vec<String> {
    let letters = letters.max(6) as usize;
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_inclusive([' ', ',', ':', '=', '/']) {
        let last = lines.len() - 1;
        let fits = lines[last].chars().count() + word.trim_end().chars().count() <= letters;
        if fits || lines[last].is_empty() { lines[last].push_str(word) } else { lines.push(word.to_owned()) }
    }
    for line in &mut lines {
        if line.chars().count() > letters {
            *line = line.chars().take(letters - 1).chain(['…']).collect();
        }
    }
    if lines.len() > 3 {
        lines.truncate(3);
        lines[2].push('…');
    }
    lines.iter().map(|line| line.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_broken_where_they_may_be() {
        assert_eq!(wrap("serpent:srpt,enforce=kernel", 14), ["serpent:srpt,", "enforce=kernel"]);
        assert_eq!(wrap("load 0.8", 20), ["load 0.8"]);
        assert_eq!(wrap("abcdefghijklmnop", 8), ["abcdefg…"]);
        assert_eq!(wrap("a1 b2 c3 d4 e5 f6 g7 h8 i9", 6).len(), 3);
    }

    #[test]
    fn a_legend_wraps_when_it_must() {
        let series = |name: &str| Series {
            name: name.to_owned(),
            kind: Kind::Measured(0),
            shape: Shape::Line,
            points: Vec::new(),
        };
        let all: Vec<Series> = ["nginx", &"x".repeat(70), &"y".repeat(70)].map(series).into();
        assert_eq!(legend_rows(&all).iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }
}
