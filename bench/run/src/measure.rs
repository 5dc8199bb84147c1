//! Samples, and the rows of the report that are computed from them.

use std::time::Duration;

use crate::machine::monotonic_ns;
use crate::program::Subject;

/// The measurements of one turn of one program.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub(crate) struct Sample {
    pub(crate) replies: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    /// The time until the last subscriber received a notification; 0 without subscribers.
    #[serde(default)]
    pub(crate) last_ns: u64,
    /// The end of the turn.
    #[serde(default)]
    pub(crate) at_ns: u64,
}

impl Sample {
    /// Builds a sample of replies with these latencies.
    pub(crate) fn of(mut latencies: Vec<u64>, cpu_ns: u64, wall: Duration) -> Self {
        latencies.sort_unstable();
        let at = |share: usize| latencies.get(latencies.len() * share / 100).copied();
        Self {
            replies: latencies.len() as u64,
            cpu_ns,
            wall_ns: wall.as_nanos() as u64,
            p50_ns: at(50).unwrap_or(0),
            p99_ns: at(99).unwrap_or(0),
            last_ns: 0,
            at_ns: 0,
        }
    }

    /// Returns the CPU time per reply, in µs.
    pub(crate) fn cost(&self) -> f64 {
        self.cpu_ns as f64 / self.replies.max(1) as f64 / 1_000.0
    }
}

/// The samples of all turns of one program.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) subject: Subject,
    pub(crate) samples: Vec<Sample>,
}

impl Series {
    /// Returns the ratio of each sample to the raw sample nearest in time.
    fn ratios(&self, raw: &Self, of: fn(&Sample) -> f64) -> Vec<f64> {
        let nearest = |sample: &Sample| {
            let raw = raw.samples.iter();
            raw.min_by_key(|raw| raw.at_ns.abs_diff(sample.at_ns))
        };
        let samples = self.samples.iter();
        samples
            .filter_map(|sample| Some(of(sample) / of(nearest(sample)?)))
            .collect()
    }
}

/// Runs one turn of each subject, round after round.
pub(crate) fn interleave<P>(
    rounds: usize,
    programs: &mut [(Subject, P)],
    mut turn: impl FnMut(&mut P) -> Sample,
) -> Vec<Series> {
    let mut series: Vec<Series> = programs
        .iter()
        .map(|(subject, _)| Series {
            subject: *subject,
            samples: Vec::new(),
        })
        .collect();
    for _ in 0..rounds {
        for ((_, program), series) in programs.iter_mut().zip(&mut series) {
            let sample = turn(program);
            let at_ns = monotonic_ns();
            series.samples.push(Sample { at_ns, ..sample });
        }
    }
    series
}

/// The median, minimum and maximum of several figures.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
        Self {
            median: at(figures.len() / 2),
            least: at(0),
            most: at(figures.len().saturating_sub(1)),
        }
    }

    pub(crate) fn exact(figure: f64) -> Self {
        Self {
            median: figure,
            least: figure,
            most: figure,
        }
    }
}

/// One row of the report: one measurement of all subjects.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) unit: &'static str,
    pub(crate) goal: Option<Goal>,
    pub(crate) cells: Vec<Cell>,
    /// Its position on a growth curve, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) point: Option<Point>,
    /// The table of the report in which it is shown.
    #[serde(skip)]
    pub(crate) table: Table,
    /// What the figures do not show, such as why a subject has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// A table of the report, with a column for each of its subjects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Table {
    /// Servers and clients written with an SDK.
    #[default]
    Sdks,
    /// Programs between clients and servers.
    Bridges,
}

/// A position on a growth curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Point {
    /// The quantity on the horizontal axis.
    pub(crate) of: &'static str,
    pub(crate) count: u64,
}

/// The goal for Bowline.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) enum Goal {
    /// At most this multiple of raw.
    Ratio(f64),
    /// At most this value.
    Value(f64),
    /// At most this value in every case, not in the middle.
    Slowest(f64),
    /// At most this multiple of raw, and at most this value.
    RatioAndValue(f64, f64),
    /// At most the value of rmcp in its fastest configuration.
    RmcpBest,
}

/// The result of one subject.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Cell {
    pub(crate) subject: &'static str,
    pub(crate) value: Spread,
    pub(crate) ratio: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pace: Option<Pace>,
}

/// Throughput and latencies, which depend on the machine and its load.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Pace {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Row {
    /// Builds a row of the CPU time per reply.
    pub(crate) fn cpu(work: impl Into<String>, goal: Option<Goal>, series: &[Series]) -> Self {
        let raw = series.iter().find(|one| one.subject == Subject::Raw);
        let middle = |one: &Series, of: fn(&Sample) -> f64| {
            Spread::of(one.samples.iter().map(of).collect()).median
        };
        let cells = series.iter().map(|one| Cell {
            subject: one.subject.name(),
            value: Spread::of(one.samples.iter().map(Sample::cost).collect()),
            ratio: raw.map(|raw| Spread::of(one.ratios(raw, Sample::cost))),
            pace: Some(Pace {
                per_second: middle(one, |sample| {
                    sample.replies as f64 * 1e9 / sample.wall_ns.max(1) as f64
                }),
                p50_us: middle(one, |sample| sample.p50_ns as f64 / 1e3),
                p99_us: middle(one, |sample| sample.p99_ns as f64 / 1e3),
            }),
        });
        Self {
            work: work.into(),
            unit: "µs CPU",
            goal,
            cells: cells.collect(),
            point: None,
            table: Table::default(),
            notes: Vec::new(),
        }
    }

    /// Builds a row of the time until the last subscriber received a notification.
    pub(crate) fn delivery_latency(work: impl Into<String>, series: &[Series]) -> Self {
        let in_ms: fn(&Sample) -> f64 = |sample| sample.last_ns as f64 / 1e6;
        let raw = series.iter().find(|one| one.subject == Subject::Raw);
        let cells = series.iter().map(|one| Cell {
            subject: one.subject.name(),
            value: Spread::of(one.samples.iter().map(in_ms).collect()),
            ratio: raw.map(|raw| Spread::of(one.ratios(raw, in_ms))),
            pace: None,
        });
        Self {
            work: work.into(),
            unit: "ms",
            goal: None,
            cells: cells.collect(),
            point: None,
            table: Table::default(),
            notes: Vec::new(),
        }
    }

    /// Builds a row of the 99th percentile of the latencies.
    pub(crate) fn p99(work: impl Into<String>, series: &[Series]) -> Self {
        let in_ms: fn(&Sample) -> f64 = |sample| sample.p99_ns as f64 / 1e6;
        let cells = series.iter().map(|one| Cell {
            subject: one.subject.name(),
            value: Spread::of(one.samples.iter().map(in_ms).collect()),
            ratio: None,
            pace: None,
        });
        Self {
            cells: cells.collect(),
            unit: "ms",
            ..Self::plain(work, "", None, &[])
        }
    }

    /// Shows the row in the table of bridges.
    pub(crate) fn of_bridges(mut self) -> Self {
        self.table = Table::Bridges;
        self
    }

    /// Adds what the figures do not show.
    pub(crate) fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Places the row on a growth curve.
    pub(crate) fn at(mut self, of: &'static str, count: u64) -> Self {
        self.point = Some(Point { of, count });
        self
    }

    /// Builds a row of figures that were measured once.
    pub(crate) fn plain(
        work: impl Into<String>,
        unit: &'static str,
        goal: Option<Goal>,
        figures: &[(Subject, f64)],
    ) -> Self {
        let raw = figures.iter().find(|(subject, _)| *subject == Subject::Raw);
        let raw = raw
            .map(|(_, figure)| *figure)
            .filter(|figure| *figure > 0.0);
        let cells = figures.iter().map(|(subject, figure)| Cell {
            subject: subject.name(),
            value: Spread::exact(*figure),
            ratio: raw.map(|raw| Spread::exact(figure / raw)),
            pace: None,
        });
        Self {
            work: work.into(),
            unit,
            goal,
            cells: cells.collect(),
            point: None,
            table: Table::default(),
            notes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cost_us: u64, at_ns: u64) -> Sample {
        Sample {
            replies: 1,
            cpu_ns: cost_us * 1_000,
            wall_ns: 1,
            p50_ns: 0,
            p99_ns: 0,
            last_ns: 0,
            at_ns,
        }
    }

    #[test]
    fn a_sample_is_compared_with_the_raw_sample_nearest_in_time() {
        let raw = Series {
            subject: Subject::Raw,
            samples: vec![sample(10, 0), sample(20, 100)],
        };
        let ours = Series {
            subject: Subject::Bowline,
            samples: vec![sample(15, 10), sample(30, 90)],
        };

        assert_eq!(ours.ratios(&raw, Sample::cost), [1.5, 1.5]);
    }

    #[test]
    fn a_spread_has_median_minimum_and_maximum() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]);

        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.0, 3.0));
    }
}
