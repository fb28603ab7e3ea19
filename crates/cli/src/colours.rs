//! The colours of lines and bars in pictures.

use plotters::style::RGBColor;

/// The Okabe-Ito palette: eight colours that colour-blind readers can tell apart.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(140, 140, 140),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];
