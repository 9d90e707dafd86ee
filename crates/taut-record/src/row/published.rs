use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Figures of a published experiment beside those of its repetition.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PublishedRow {
    /// Its subject.
    pub experiment: String,
    /// What the published one was measured on.
    pub there: String,
    /// What the repetition was measured on, and what differs.
    pub here: String,
    /// The figures.
    pub figures: Vec<PublishedFigure>,
    /// What the comparison means, in a sentence or two.
    pub meaning: String,
    /// The command that measures it at length.
    pub command: String,
}

/// One figure of both.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PublishedFigure {
    /// What it is of.
    pub figure: String,
    /// Unit of both values.
    pub unit: FigureUnit,
    /// As published; null where that has no such figure.
    pub published: Option<f64>,
    /// What was published in words, where it has no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_in_words: Option<String>,
    /// As measured here; null where it was not measured.
    pub here: Option<f64>,
}

/// Unit of a figure.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    /// Nanoseconds.
    Ns,
    /// Bits per second.
    Bps,
    /// A number or a ratio.
    Number,
    /// A share, from 0 to 1.
    Share,
}
