//! The command-line options of `bench-run`.

use std::path::PathBuf;
use std::time::Duration;

use crate::installed::InstalledBridges;
use crate::legs;

pub(crate) struct Options {
    /// The legs to run; all if empty.
    legs: Vec<String>,
    pub(crate) quick: bool,
    pub(crate) json: bool,
    /// The folder to write `RESULTS.md` and `growth.svg` to.
    pub(crate) write: Option<PathBuf>,
    /// The bridges of others.
    pub(crate) bridges: InstalledBridges,
}

impl Options {
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            legs: Vec::new(),
            quick: false,
            json: false,
            write: None,
            bridges: InstalledBridges::default(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--write" => {
                    let path = words.next().ok_or("`--write` needs a folder")?;
                    options.write = Some(path.into());
                }
                "--bridges" => {
                    let path = words.next().ok_or("`--bridges` needs a file")?;
                    options.bridges = InstalledBridges::read(path.as_ref())?;
                }
                leg if legs::LEGS.iter().any(|(name, _)| *name == leg) => {
                    options.legs.push(word.clone());
                }
                other => return Err(format!("unknown leg `{other}`")),
            }
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, leg: &str) -> bool {
        self.legs.is_empty() || self.legs.iter().any(|name| name == leg)
    }

    /// Returns whether all legs run.
    pub(crate) fn is_complete(&self) -> bool {
        self.legs.is_empty()
    }

    /// Returns how many turns each program has.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 3 } else { 5 }
    }

    /// Returns the duration of one turn.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 500 })
    }
}
