//! [`Latencies`], the times of many requests: percentiles and a histogram.

use std::time::Duration;

use serde_json::{Value, json};

use crate::output::{Output, Style};

/// The times of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    sorted: Vec<Duration>,
}

impl Latencies {
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self { sorted: times }
    }

    pub(crate) fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the time that this percentage of requests did not exceed (nearest rank).
    pub(crate) fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.sorted.len() * percent).div_ceil(100).max(1);
        self.sorted.get(rank - 1).copied()
    }

    /// Returns the percentiles on one line.
    pub(crate) fn summary(&self) -> String {
        let names = [
            (0, "min"),
            (50, "p50"),
            (90, "p90"),
            (99, "p99"),
            (100, "max"),
        ];
        let texts = names.into_iter().filter_map(|(percent, name)| {
            Some(format!("{name} {}", time_text(self.percentile(percent)?)))
        });
        texts.collect::<Vec<_>>().join("  ")
    }

    pub(crate) fn to_json(&self) -> Value {
        let microseconds = |percent| {
            let time = self.percentile(percent)?;
            u64::try_from(time.as_micros()).ok()
        };
        json!({
            "count": self.count(),
            "minMicros": microseconds(0),
            "p50Micros": microseconds(50),
            "p90Micros": microseconds(90),
            "p99Micros": microseconds(99),
            "maxMicros": microseconds(100),
        })
    }

    /// Returns a bar for each range of times. Each range is twice as wide as the one before.
    pub(crate) fn histogram(&self, output: Output) -> Vec<String> {
        let (Some(first), Some(last)) = (self.sorted.first(), self.sorted.last()) else {
            return Vec::new();
        };
        let bucket = |time: &Duration| time.as_micros().max(1).ilog2();
        let (lowest, highest) = (bucket(first), bucket(last));
        let counts: Vec<usize> = (lowest..=highest)
            .map(|at| self.sorted.iter().filter(|time| bucket(time) == at).count())
            .collect();
        let most = counts.iter().max().copied().unwrap_or(1).max(1);
        let columns = output.width.saturating_sub(24).clamp(8, 60);
        let bars = (lowest..=highest).zip(&counts).map(|(at, count)| {
            let limit = Duration::from_micros(1 << (at + 1).min(63));
            // At least one column for what is there at all.
            let length = (count * columns).div_ceil(most);
            let bar = output.style(Style::Cyan, "█".repeat(length));
            format!("  < {:>8}  {count:>6}  {bar}", time_text(limit))
                .trim_end()
                .to_owned()
        });
        bars.collect()
    }
}

/// Returns a time with three digits and a unit.
pub(crate) fn time_text(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        _ if micros < 999.5 => format!("{micros:.0} µs"),
        _ if micros < 99_950.0 => format!("{:.1} ms", micros / 1e3),
        _ if micros < 999_500.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(millis: impl IntoIterator<Item = u64>) -> Latencies {
        Latencies::new(millis.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn percentiles_are_by_the_nearest_rank() {
        let hundred = latencies((1..=100).rev());

        let at = |percent| hundred.percentile(percent).unwrap().as_millis();
        assert_eq!([0, 50, 90, 99, 100].map(at), [1, 50, 90, 99, 100]);
        assert_eq!(
            latencies([7]).percentile(99),
            Some(Duration::from_millis(7))
        );
        assert_eq!(latencies([]).percentile(50), None);
        assert_eq!(latencies([]).summary(), "");
        assert!(latencies([]).histogram(Output::plain(80)).is_empty());
    }

    #[test]
    fn a_histogram_counts_every_time_once_and_fits_the_terminal() {
        let lines = latencies([1, 1, 2, 3, 900]).histogram(Output::plain(40));

        let counts = lines
            .iter()
            .map(|line| line.split_whitespace().nth(3).unwrap());
        let sum: usize = counts.map(|count| count.parse::<usize>().unwrap()).sum();
        assert_eq!(sum, 5);
        for line in &lines {
            assert!(crate::output::display_width(line) <= 40, "{line}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        let text = |micros| time_text(Duration::from_micros(micros));

        assert_eq!(
            [7, 999, 1_500, 250_000, 2_500_000].map(text),
            ["7 µs", "999 µs", "1.5 ms", "250 ms", "2.50 s"]
        );
    }
}
