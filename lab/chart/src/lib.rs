//! Tables and plots as plain data, with their text and SVG forms.
//!
//! A plot is drawn only as SVG, so neither fonts nor a rasteriser are needed. Measured values are solid lines
//! with markers. Ideals are broken lines in the colour of the text. Published values are hollow diamonds.
//!
//! `src/pages` has the style sheet and the table of HTML pages, for the templates of the crates that make
//! such pages.
#![forbid(unsafe_code)]

mod axis;
mod draw;
mod svg;
mod table;
mod text;

use serde::Serialize;

pub use self::{
    axis::{Axis, Unit},
    svg::{inline_svg, svg_file},
    table::{Table, aligned},
    text::{command, paragraph, wrapped},
};

/// A plot as plain numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The conditions; may be empty.
    pub subtitle: String,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// The series.
    pub series: Vec<Series>,
}

/// A line, a set of bars, or single values.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The source of the values.
    pub kind: Kind,
    /// The way the values are drawn.
    pub shape: Shape,
    /// The values, sorted by x.
    pub points: Vec<PlotPoint>,
}

/// The source of a series' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Measured with the subject of this number. The number decides colour and marker.
    Measured(usize),
    /// Computed for the ideal of this number.
    Ideal(usize),
    /// Published for the subject of this number.
    Published(usize),
}

impl Kind {
    /// Whether the values were measured.
    pub fn is_measured(&self) -> bool {
        matches!(self, Self::Measured(_))
    }
}

/// The way a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A line, with markers and intervals.
    Line,
    /// Bars, with intervals.
    Bars,
    /// Markers alone, with intervals.
    Marks,
}

/// A point of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlotPoint {
    /// Position on the x axis.
    pub x: f64,
    /// Position on the y axis.
    pub y: f64,
    /// Lower and upper end, if there is an interval or a range.
    pub interval: Option<(f64, f64)>,
}

impl Plot {
    /// Adds a series, unless it has no values.
    pub fn push(&mut self, series: Series) {
        if !series.points.is_empty() {
            self.series.push(series);
        }
    }

    /// Whether the plot has measured values.
    pub fn has_values(&self) -> bool {
        self.series.iter().any(|series| series.kind.is_measured())
    }

    /// A name for the plot's file: its number, then letters, digits and dashes of the title and subtitle.
    pub fn file_stem(&self, number: usize) -> String {
        let text = format!("{} {}", self.title, self.subtitle).to_lowercase();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let mut stem = format!("{number:02}");
        for word in words {
            if stem.len() + word.len() > 80 {
                break;
            }
            stem.push('-');
            stem.push_str(word);
        }
        stem
    }

    /// A description of the plot in words, for people who cannot see it.
    pub fn alt_text(&self) -> String {
        let mut text = format!("{}. {} over {}.", self.title, self.y.label, self.x.label);
        for series in &self.series {
            let ends = series.points.first().zip(series.points.last());
            let Some((first, last)) = ends else { continue };
            let greatest = series.points.iter().map(|point| point.y).fold(f64::NEG_INFINITY, f64::max);
            let [x0, x1] = [first, last].map(|point| self.x.written(point.x));
            let [y0, y1, most] = [first.y, last.y, greatest].map(|y| self.y.written(y));
            text += &match series.points.len() {
                1 => format!(" {}: {y0} at {x0}.", series.name),
                _ => format!(" {}: from {y0} at {x0} to {y1} at {x1}, at most {most}.", series.name),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, kind: Kind, scale: f64) -> Series {
        let point = |i: i32| {
            let y = scale * 10_f64.powf(f64::from(i) / 4.0);
            PlotPoint { x: f64::from(i) / 10.0, y, interval: Some((y * 0.8, y * 1.2)) }
        };
        Series { name: name.to_owned(), kind, shape: Shape::Line, points: (1..=9).map(point).collect() }
    }

    fn plot(log: bool) -> Plot {
        Plot {
            title: "Mean response time < over > load & \"more\"".to_owned(),
            subtitle: "10 Mbit/s".to_owned(),
            x: Axis { label: "load".to_owned(), ..Axis::default() },
            y: Axis { label: "mean response time (ms)".to_owned(), log, ..Axis::default() },
            series: vec![
                line("nginx", Kind::Measured(0), 4.0),
                line("serpent:srpt", Kind::Measured(1), 1.0),
                line("exact SRPT", Kind::Ideal(0), 0.7),
                Series { shape: Shape::Marks, ..line("published", Kind::Published(1), 1.5) },
            ],
        }
    }

    #[test]
    fn a_plot_is_well_formed_whatever_its_texts_are() {
        for log in [false, true] {
            let plot = plot(log);
            for svg in [inline_svg(&plot, 3), svg_file(&plot)] {
                let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
                let text: String = document.descendants().filter_map(|node| node.text()).collect();
                for wanted in ["nginx", "serpent:srpt", "published", "load", "mean response time (ms)", "10 Mbit/s"] {
                    assert!(text.contains(wanted), "{wanted} is not in {text}");
                }
            }
        }
    }

    #[test]
    fn inline_it_takes_the_pages_colour_and_says_what_it_shows() {
        let svg = inline_svg(&plot(true), 3);
        assert!(svg.contains("currentColor") && !svg.contains(draw::INK_HEX) && !svg.contains(draw::GRID_HEX), "{svg}");
        assert!(svg.contains("role=\"img\"") && svg.contains("nginx: from 7.11 at 0.1 to 711 at 0.9"), "{svg}");
        assert!(svg_file(&plot(true)).contains(draw::INK_HEX));
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out_and_nothing_panics() {
        let nothing = Plot { series: Vec::new(), ..plot(true) };
        let mut odd = plot(true);
        for (i, y) in [f64::NAN, 0.0, -1.0, f64::INFINITY].into_iter().enumerate() {
            odd.series[0].points[i].y = y;
        }
        let mut single = plot(true);
        single.series.truncate(1);
        single.series[0].points.truncate(1);
        for plot in [nothing, odd, single] {
            assert!(roxmltree::Document::parse(&svg_file(&plot)).is_ok());
        }
    }

    #[test]
    fn file_names_are_plain() {
        assert_eq!(plot(true).file_stem(7), "07-mean-response-time-over-load-more-10-mbit-s");
    }
}
