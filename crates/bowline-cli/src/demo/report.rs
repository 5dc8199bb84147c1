//! The report of `bowline demo`, as a table or JSON.

use std::time::Duration;

use serde::Serialize;

use super::cell::{CALLS, DemoCell};
use super::leaks::Leaks;
use super::signals::ReceivedSignal;

/// All rows, and the verdict.
#[derive(Debug, Serialize)]
pub(crate) struct DemoReport {
    pub(crate) rows: Vec<ReportRow>,
    pub(crate) verdict: String,
    pub(crate) is_clean: bool,
}

/// The results of one transport in one era.
#[derive(Debug, Serialize)]
pub(crate) struct ReportRow {
    #[serde(skip)]
    pub(crate) cell: DemoCell,
    pub(crate) transport: &'static str,
    pub(crate) version: &'static str,
    /// How many calls were dropped.
    pub(crate) calls: u64,
    /// How many handlers were dropped, as counted by the server.
    pub(crate) stopped: u64,
    /// What the server received between the first call and the last, without requests.
    pub(crate) wire: Vec<ReceivedSignal>,
    #[serde(rename = "microseconds")]
    pub(crate) stop_latency: Option<StopLatency>,
    pub(crate) left: Leaks,
    /// The error that ended the row early.
    pub(crate) failure: Option<String>,
}

/// The time from the drop of the caller's future to the drop of the handler's in microseconds, on a clock that both
/// processes share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct StopLatency {
    pub(crate) median: f64,
    pub(crate) slowest: f64,
}

impl StopLatency {
    pub(crate) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let in_microseconds = |time: &Duration| time.as_nanos() as f64 / 1_000.0;
        Some(Self {
            median: in_microseconds(times.get(times.len() / 2)?),
            slowest: in_microseconds(times.last()?),
        })
    }
}

impl ReportRow {
    pub(crate) fn new(cell: DemoCell) -> Self {
        Self {
            cell,
            transport: cell.transport.name(),
            version: cell.era.version(),
            calls: CALLS,
            stopped: 0,
            wire: Vec::new(),
            stop_latency: None,
            left: Leaks::default(),
            failure: None,
        }
    }

    /// Returns whether every handler stopped, the server received exactly one cancellation per call, and no resource
    /// leaked.
    pub(crate) fn is_clean(&self) -> bool {
        let is_signalled = match (self.cell.signal(), &*self.wire) {
            (None, []) => true,
            (Some(signal), [received]) => received.what == signal && received.times == self.calls,
            _ => false,
        };
        is_signalled && self.stopped == self.calls && self.left.is_empty() && self.failure.is_none()
    }

    fn texts(&self) -> [String; 7] {
        let wire: Vec<String> = (self.wire.iter())
            .map(|signal| match signal.times == self.calls {
                true => signal.what.clone(),
                false => format!("{} × {}", signal.times, signal.what),
            })
            .collect();
        let wire = match wire.is_empty() {
            true => "none: the same future".to_owned(),
            false => wire.join(", "),
        };
        let time = |pick: fn(StopLatency) -> f64| {
            (self.stop_latency).map_or("-".to_owned(), |times| format!("{:.1}", pick(times)))
        };
        [
            self.transport.to_owned(),
            self.version.to_owned(),
            wire,
            format!("{}/{}", self.stopped, self.calls),
            time(|times| times.median),
            time(|times| times.slowest),
            match (&self.failure, self.left.is_empty()) {
                (Some(failure), _) => failure.clone(),
                (None, false) => format!("leaked {}", self.left.describe()),
                (None, true) => String::new(),
            },
        ]
    }
}

impl DemoReport {
    pub(crate) fn new(rows: Vec<ReportRow>) -> Self {
        let calls: u64 = rows.iter().map(|row| row.calls).sum();
        let stopped: u64 = rows.iter().map(|row| row.stopped).sum();
        let unclean: Vec<String> = (rows.iter())
            .filter(|row| !row.is_clean())
            .map(|row| format!("{} {}", row.transport, row.version))
            .collect();
        let is_clean = unclean.is_empty();
        let verdict = match is_clean {
            true => format!(
                "{calls} calls were dropped, {stopped} handlers stopped, and no resources leaked."
            ),
            false => format!(
                "{calls} calls were dropped and {stopped} handlers stopped, but rows failed: {}.",
                unclean.join(", ")
            ),
        };
        Self {
            rows,
            verdict,
            is_clean,
        }
    }

    /// Returns the lines of the table, the header first, each with whether its row is clean.
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
    "received by the server",
    "stopped",
    "median",
    "slowest",
    "",
];
/// The columns with numbers, which are aligned to the right.
const NUMBERS: std::ops::Range<usize> = 3..6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::connection::{DemoEra, DemoTransport};

    fn row() -> ReportRow {
        let mut row = ReportRow::new(DemoCell {
            transport: DemoTransport::Memory,
            era: DemoEra::Modern,
        });
        row.stopped = row.calls;
        row.wire = vec![ReceivedSignal {
            what: "notifications/cancelled".to_owned(),
            times: row.calls,
            example: String::new(),
        }];
        row
    }

    #[test]
    fn a_row_is_clean_only_if_every_handler_stopped_and_nothing_leaked() {
        let mut leaking = row();
        leaking.left.tasks = 1;
        let mut running_on = row();
        running_on.stopped -= 1;
        let mut signalled_twice = row();
        signalled_twice.wire[0].times += 1;
        let mut broken = row();
        broken.failure = Some("no".to_owned());

        assert!(row().is_clean());
        for unclean in [leaking, running_on, signalled_twice, broken] {
            assert!(!unclean.is_clean(), "{unclean:?}");
        }
    }

    #[test]
    fn the_verdict_names_the_rows_that_failed() {
        let mut leaking = row();
        leaking.left.descriptors = 2;

        let report = DemoReport::new(vec![leaking]);

        assert!(!report.is_clean);
        assert!(report.verdict.contains("memory 2026-07-28"));
        assert!(report.table()[1].0.ends_with("leaked 2 descriptors"));
    }

    #[test]
    fn the_table_fits_eighty_columns() {
        let mut slow = row();
        slow.transport = "in process";
        slow.wire[0].what = "POST notifications/cancelled".to_owned();
        slow.stop_latency = Some(StopLatency {
            median: 1234.5,
            slowest: 98765.4,
        });

        let report = DemoReport::new(vec![slow]);

        for (line, _) in report.table() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        let times = [3, 1, 2].map(Duration::from_micros).to_vec();

        let times = StopLatency::of(times).unwrap();

        assert_eq!((times.median, times.slowest), (2.0, 3.0));
        assert_eq!(StopLatency::of(Vec::new()), None);
    }
}
