//! What became of the calls: as a table, as data, and in a sentence.

use std::time::Duration;

use serde::Serialize;

use super::cell::{CALLS, Cell};
use super::remains::Remains;

/// All rows, and the verdict.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) verdict: String,
    pub(crate) is_clean: bool,
}

/// What became of the calls on one transport in one era.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(skip)]
    pub(crate) cell: Cell,
    pub(crate) transport: &'static str,
    pub(crate) version: &'static str,
    /// How many calls were let go of.
    pub(crate) calls: u64,
    /// How many handlers were dropped, by the server's own count.
    pub(crate) stopped: u64,
    /// What the server heard between the first call and the last, requests aside.
    pub(crate) wire: Vec<Said>,
    pub(crate) microseconds: Option<Microseconds>,
    pub(crate) left: Remains,
    /// What kept the row from coming to its end.
    pub(crate) failure: Option<String>,
}

/// Something that was said to the server.
#[derive(Debug, Serialize)]
pub(crate) struct Said {
    pub(crate) what: String,
    pub(crate) times: u64,
    pub(crate) example: String,
}

/// From the drop of the caller's future to the drop of the handler's, on a clock that both share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Microseconds {
    pub(crate) median: f64,
    pub(crate) slowest: f64,
}

impl Microseconds {
    pub(crate) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let in_microseconds = |time: &Duration| time.as_nanos() as f64 / 1_000.0;
        Some(Self {
            median: in_microseconds(times.get(times.len() / 2)?),
            slowest: in_microseconds(times.last()?),
        })
    }
}

impl Row {
    pub(crate) fn new(cell: Cell) -> Self {
        Self {
            cell,
            transport: cell.transport.name(),
            version: cell.era.version(),
            calls: CALLS,
            stopped: 0,
            wire: Vec::new(),
            microseconds: None,
            left: Remains::default(),
            failure: None,
        }
    }

    /// Whether every handler stopped, the wire carried what it must and no more, and nothing is left.
    pub(crate) fn is_clean(&self) -> bool {
        let is_said = match (self.cell.signal(), &*self.wire) {
            (None, []) => true,
            (Some(signal), [said]) => said.what == signal && said.times == self.calls,
            _ => false,
        };
        is_said && self.stopped == self.calls && self.left.is_nothing() && self.failure.is_none()
    }

    fn texts(&self) -> [String; 7] {
        let wire: Vec<String> = (self.wire.iter())
            .map(|said| format!("{} × {}", said.times, said.what))
            .collect();
        let wire = match wire.is_empty() {
            true => "nothing: it is the caller's own future".to_owned(),
            false => wire.join(", "),
        };
        let time = |pick: fn(Microseconds) -> f64| {
            (self.microseconds).map_or("-".to_owned(), |times| format!("{:.1}", pick(times)))
        };
        [
            self.transport.to_owned(),
            self.version.to_owned(),
            wire,
            format!("{}/{}", self.stopped, self.calls),
            time(|times| times.median),
            time(|times| times.slowest),
            self.failure.clone().unwrap_or(self.left.in_words()),
        ]
    }
}

impl Report {
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        let calls: u64 = rows.iter().map(|row| row.calls).sum();
        let stopped: u64 = rows.iter().map(|row| row.stopped).sum();
        let unclean: Vec<String> = (rows.iter())
            .filter(|row| !row.is_clean())
            .map(|row| format!("{} {}", row.transport, row.version))
            .collect();
        let is_clean = unclean.is_empty();
        let verdict = match is_clean {
            true => format!(
                "{calls} calls were let go of, {stopped} handlers stopped, and nothing was left behind."
            ),
            false => format!(
                "{calls} calls were let go of and {stopped} handlers stopped, but not all is well: {}.",
                unclean.join(", ")
            ),
        };
        Self {
            rows,
            verdict,
            is_clean,
        }
    }

    /// The table, a line each, the header first; and for each line whether all is well.
    pub(crate) fn table(&self) -> Vec<(String, bool)> {
        let header = HEADER.map(str::to_owned);
        let rows = self.rows.iter().map(|row| (row.texts(), row.is_clean()));
        let lines: Vec<_> = std::iter::once((header, true)).chain(rows).collect();
        let widths: [usize; 7] = std::array::from_fn(|column| {
            let widths = lines.iter().map(|(line, _)| line[column].chars().count());
            widths.max().unwrap_or_default()
        });
        let write = |texts: [String; 7]| {
            let columns = texts.iter().zip(widths).enumerate();
            let columns = columns.map(|(at, (text, width))| match NUMBERS.contains(&at) {
                true => format!("{text:>width$}"),
                false => format!("{text:<width$}"),
            });
            let columns: Vec<String> = columns.collect();
            format!("  {}", columns.join("  ")).trim_end().to_owned()
        };
        (lines.into_iter())
            .map(|(texts, is_clean)| (write(texts), is_clean))
            .collect()
    }
}

const HEADER: [&str; 7] = [
    "transport",
    "version",
    "what the server heard",
    "stopped",
    "µs, median",
    "slowest",
    "left behind",
];
/// The columns that are numbers.
const NUMBERS: std::ops::Range<usize> = 3..6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::stage::{Era, Transport};

    fn row() -> Row {
        let mut row = Row::new(Cell {
            transport: Transport::Memory,
            era: Era::Modern,
        });
        row.stopped = row.calls;
        row.wire = vec![Said {
            what: "notifications/cancelled".to_owned(),
            times: row.calls,
            example: String::new(),
        }];
        row
    }

    #[test]
    fn a_row_is_clean_only_if_nothing_is_missing_and_nothing_is_left() {
        let mut leaking = row();
        leaking.left.tasks = 1;
        let mut running_on = row();
        running_on.stopped -= 1;
        let mut said_twice = row();
        said_twice.wire[0].times += 1;
        let mut broken = row();
        broken.failure = Some("no".to_owned());

        assert!(row().is_clean());
        for unclean in [leaking, running_on, said_twice, broken] {
            assert!(!unclean.is_clean(), "{unclean:?}");
        }
    }

    #[test]
    fn the_verdict_names_what_is_not_well() {
        let mut leaking = row();
        leaking.left.descriptors = 2;

        let report = Report::new(vec![leaking]);

        assert!(!report.is_clean);
        assert!(report.verdict.contains("memory 2026-07-28"));
        assert!(report.table()[1].0.ends_with("2 descriptors"));
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        let times = [3, 1, 2].map(Duration::from_micros).to_vec();

        let times = Microseconds::of(times).unwrap();

        assert_eq!((times.median, times.slowest), (2.0, 3.0));
        assert_eq!(Microseconds::of(Vec::new()), None);
    }
}
