//! Why nothing was generated.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why nothing was generated, and where: a line of a `.proto` file, if the reason is there.
///
/// Its [`Debug`](fmt::Debug) form is its [`Display`](fmt::Display) form, since that is what a
/// `main` that returns it shows, and what a build then prints:
///
/// ```text
/// Error: proto/demo.proto:12:11: there is no type `Txet` in this file or in its imports
/// ```
pub struct Error {
    file: Option<PathBuf>,
    position: Option<Position>,
    reason: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// A place in a file. Both are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl Error {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self {
            file: None,
            position: None,
            reason: reason.into(),
            source: None,
        }
    }

    pub(crate) fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.to_owned());
        self
    }

    pub(crate) fn at(mut self, position: Option<Position>) -> Self {
        self.position = position;
        self
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The file that is meant, as it was named or found.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The line in that file, counted from 1.
    pub fn line(&self) -> Option<u32> {
        Some(self.position?.line)
    }

    /// The column in that line, counted from 1 in characters.
    pub fn column(&self) -> Option<u32> {
        Some(self.position?.column)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some(Position { line, column }) = self.position {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.reason)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source: &(dyn StdError + 'static) = self.source.as_deref()?;
        Some(source)
    }
}
