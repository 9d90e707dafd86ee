use alloc::string::String;
use core::fmt;

/// What is wrong with a scenario, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScenarioError {
    place: Option<(usize, usize)>,
    message: String,
}

impl ScenarioError {
    /// Wrong as a whole, or not from a text.
    pub(crate) const fn whole(message: String) -> Self {
        Self { place: None, message }
    }

    /// At a byte of a text.
    pub(crate) fn at(text: &str, offset: usize, message: String) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { place: Some((line, column)), message }
    }

    /// The same error with its place in a text.
    pub(crate) fn found_at(self, text: &str, offset: usize) -> Self {
        Self::at(text, offset, self.message)
    }

    /// Line, from 1, when it is about a place in a text.
    pub fn line(&self) -> Option<usize> {
        self.place.map(|(line, _)| line)
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> Option<usize> {
        self.place.map(|(_, column)| column)
    }

    /// What is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl core::error::Error for ScenarioError {}
