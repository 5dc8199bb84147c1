//! [`check`]: laws of the specification over a recording.
//!
//! A [`Law`] is a sentence of the specification that a recording can violate. What cannot be seen on the wire is not
//! checked, such as whether a handler really stopped.

mod context;
pub(crate) use context::CheckContext;

mod junit;

mod laws;

use std::fmt;

use bowline_core::era::Dialect;
use serde::Serialize;

use crate::Recording;

/// A sentence of the specification that is checked.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Law {
    /// A short name, such as `answered-once`. Names are stable.
    pub name: &'static str,
    /// How binding it is.
    pub level: LawLevel,
    /// The sentence, in short.
    pub sentence: &'static str,
    /// The page of the specification, such as `basic/patterns/cancellation`.
    pub page: &'static str,
    edition: Edition,
    check: fn(&CheckContext<'_>, &mut Vec<Breach>),
}

/// The edition of the specification that contains a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edition {
    Latest,
    LatestLegacy,
}

/// How binding a law is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(
    clippy::exhaustive_enums,
    reason = "other words of the specification state no obligation"
)]
pub enum LawLevel {
    /// `SHOULD` or `SHOULD NOT`.
    Should,
    /// `MUST` or `MUST NOT`.
    Must,
}

/// A violation of a law.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The law.
    pub law: Law,
    /// What is wrong.
    pub what: String,
    /// The lines that show it.
    pub lines: Vec<usize>,
    /// The number of the exchange in the [`Timeline`](crate::Timeline).
    pub exchange: Option<usize>,
}

/// The result of [`check`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The violations, in the order of their lines.
    pub findings: Vec<Finding>,
    /// What limits the check, such as lost events.
    pub notes: Vec<String>,
}

/// A violation, before it is known of which law.
#[derive(Debug)]
pub(crate) struct Breach {
    what: String,
    lines: Vec<usize>,
    exchange: Option<usize>,
}

impl Breach {
    fn new(what: impl Into<String>, lines: impl IntoIterator<Item = usize>) -> Self {
        Self {
            what: what.into(),
            lines: lines.into_iter().collect(),
            exchange: None,
        }
    }

    fn of(mut self, exchange: impl Into<Option<usize>>) -> Self {
        self.exchange = exchange.into();
        self
    }
}

/// Checks a recording against all laws.
///
/// # Examples
///
/// ```
/// use bowline_recording::{Recording, check};
///
/// let text = concat!(
///     r#"{"format":"bowline-recording","version":1,"started":"2026-07-28T12:00:00Z","transport":"stdio"}"#, "\n",
///     r#"{"at":1,"connection":1,"event":"message","from":"server","message":{"jsonrpc":"2.0","id":9,"result":{}}}"#, "\n",
/// );
/// let report = check(&Recording::parse(text.as_bytes())?);
///
/// assert_eq!(report.findings[0].law.name, "answer-matches");
/// assert_eq!(report.findings[0].lines, [2]);
/// # Ok::<(), bowline_recording::ReadError>(())
/// ```
#[must_use]
pub fn check(recording: &Recording) -> Report {
    let context = CheckContext::new(recording);
    let mut findings = Vec::new();
    for law in all_laws() {
        let mut breaches = Vec::new();
        (law.check)(&context, &mut breaches);
        findings.extend(breaches.into_iter().map(|breach| Finding {
            law: *law,
            what: breach.what,
            lines: breach.lines,
            exchange: breach.exchange,
        }));
    }
    // Stable: findings of one line keep the order of the laws.
    findings.sort_by_key(|finding| finding.lines.first().copied());
    Report {
        findings,
        notes: context.notes(),
    }
}

/// Returns all laws.
pub fn all_laws() -> impl Iterator<Item = &'static Law> {
    laws::GROUPS.iter().flat_map(|group| group.iter())
}

impl Law {
    /// Returns the address of the page of the specification.
    #[must_use]
    pub fn url(&self) -> String {
        let edition = match self.edition {
            Edition::Latest => Dialect::LATEST,
            Edition::LatestLegacy => Dialect::LATEST_LEGACY,
        };
        let page = self.page;
        format!("https://modelcontextprotocol.io/specification/{edition}/{page}")
    }
}

impl fmt::Debug for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl LawLevel {
    /// Returns `must` or `should`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Must => "must",
            Self::Should => "should",
        }
    }
}

#[cfg(test)]
mod tests;
