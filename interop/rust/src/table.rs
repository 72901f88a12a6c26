//! Tables that are measured, and stand in a text.

use crate::Result;
use crate::report::claim;

const END: &str = "<!-- End of what is written. -->";

/// Where a table stands.
pub(crate) struct Place {
    /// Seen from the root of the repository, where `interop/run` is.
    pub(crate) file: &'static str,
    /// The line before it.
    pub(crate) begin: &'static str,
}

impl Place {
    pub(crate) fn write(&self, table: &str) -> Result<()> {
        let text = std::fs::read_to_string(self.file)?;
        let (before, _, after) = self.parts(&text)?;
        let text = format!("{before}\n\n{table}\n\n{after}");
        Ok(std::fs::write(self.file, text)?)
    }

    /// Compares it with what was measured.
    pub(crate) fn check(&self, table: &str) -> Result<()> {
        let text = std::fs::read_to_string(self.file)?;
        let (_, written, _) = self.parts(&text)?;
        for (there, here) in written.trim().lines().zip(table.lines()) {
            claim!(there == here, "there it says {there}, and here {here}");
        }
        claim!(written.trim() == table, "it has another number of lines");
        Ok(())
    }

    /// What stands before, between and from the end of the table's place on.
    fn parts<'a>(&self, text: &'a str) -> Result<(&'a str, &'a str, &'a str)> {
        let missing = || format!("{} has no place that begins with {}", self.file, self.begin);
        let begin = text.find(self.begin).ok_or_else(missing)? + self.begin.len();
        let (before, rest) = text.split_at(begin);
        let end = rest.find(END).ok_or_else(missing)?;
        let (written, after) = rest.split_at(end);
        Ok((before, written, after))
    }
}
