//! [`StatusLine`], a line at the bottom of the terminal that shows progress, and what else goes to stderr meanwhile.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bowline::types::ProgressNotificationParams;

use crate::output::{Output, Style, fit, visible_line};

/// The last line of stderr. Clones share it. Without a terminal there is no line, only what is printed.
#[derive(Clone, Debug)]
pub(crate) struct StatusLine {
    shown: Arc<Mutex<Option<String>>>,
    /// Whether a person is asked something, which progress must not overwrite.
    is_paused: Arc<AtomicBool>,
    output: Output,
}

impl StatusLine {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            shown: Arc::default(),
            is_paused: Arc::default(),
            output,
        }
    }

    /// Shows the progress of a call.
    pub(crate) fn show_progress(&self, progress: &ProgressNotificationParams) {
        if self.output.is_stderr_styled && !self.is_paused.load(Ordering::Relaxed) {
            self.replace(Some(progress_text(progress, self.output.width)));
        }
    }

    /// Removes the line, and shows no progress until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
        self.clear();
    }

    pub(crate) fn resume(&self) {
        self.is_paused.store(false, Ordering::Relaxed);
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.replace(None);
    }

    /// Prints lines above the progress.
    pub(crate) fn print(&self, lines: &str) {
        // Held until the line is drawn again, so that two writers do not mix.
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stderr = std::io::stderr().lock();
        // Fails if stderr is closed; there is no other place to write to.
        let _ = match &*shown {
            Some(line) => write!(stderr, "\r\u{1b}[K{lines}\n{line}"),
            None => writeln!(stderr, "{lines}"),
        };
        let _ = stderr.flush();
    }

    fn replace(&self, line: Option<String>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stderr = std::io::stderr().lock();
        if shown.is_some() || line.is_some() {
            let text = line.as_deref().unwrap_or_default();
            let _ = write!(stderr, "\r\u{1b}[K{text}");
            let _ = stderr.flush();
        }
        *shown = line;
    }

    /// Prints a line in a style.
    pub(crate) fn print_styled(&self, style: Style, text: &str) {
        self.print(&self.output.style_stderr(style, text));
    }
}

/// Returns a bar with the percentage if the total is known, else the amount; and the message.
fn progress_text(progress: &ProgressNotificationParams, width: usize) -> String {
    let message = progress.message.as_deref().unwrap_or_default();
    let total = progress
        .total
        .filter(|total| *total > 0.0 && total.is_finite());
    let amount = match total {
        Some(total) => {
            let part = (progress.progress / total).clamp(0.0, 1.0);
            // In range: the part is at most 1.
            let filled = (part * BAR_COLUMNS as f64) as usize;
            let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR_COLUMNS - filled));
            format!("{bar} {:3.0}%", part * 100.0)
        }
        None => format!("{}", progress.progress),
    };
    // One column less: a full line would wrap on some terminals.
    fit(
        &format!("{amount} {}", visible_line(message)),
        width.saturating_sub(1),
    )
    .trim_end()
    .to_owned()
}

const BAR_COLUMNS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(params: serde_json::Value, width: usize) -> String {
        progress_text(&serde_json::from_value(params).unwrap(), width)
    }

    #[test]
    fn progress_is_a_bar_if_the_total_is_known() {
        let half = text(
            json!({"progressToken": 1, "progress": 5, "total": 10, "message": "step 5"}),
            80,
        );
        assert_eq!(
            half,
            format!("{}{}  50% step 5", "█".repeat(12), "░".repeat(12))
        );
        let too_much = text(json!({"progressToken": 1, "progress": 50, "total": 10}), 80);
        assert!(too_much.ends_with("100%"), "{too_much}");
        assert_eq!(text(json!({"progressToken": 1, "progress": 7}), 80), "7");
        assert_eq!(
            text(json!({"progressToken": 1, "progress": 7, "total": 0}), 80),
            "7"
        );
    }

    #[test]
    fn progress_never_overflows_the_line() {
        let long = json!({"progressToken": 1, "progress": 5, "total": 10, "message": "x\u{1b}[2J".repeat(99)});

        let line = text(long, 40);

        assert!(crate::output::display_width(&line) < 40);
        assert!(!line.contains('\u{1b}'));
    }
}
