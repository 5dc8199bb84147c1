//! What `tap` shows while messages pass.

use bowline_recording::{Event, Timeline};

use crate::child_stderr::StderrWriter;
use crate::output::Output;
use crate::timeline_view::{entry_json, format_row, row};

/// Returns a function that prints events to stderr as they happen. It never blocks: if stderr is not read, lines are
/// lost.
pub(super) fn observer(output: Output, stderr: StderrWriter) -> impl FnMut(&Event) + Send {
    let mut timeline = Timeline::live();
    move |event| {
        for entry in timeline.observe(event) {
            if output.is_json() {
                stderr.write(&entry_json(&timeline, event, &entry).to_string());
            } else if let Some(row) = row(&timeline, event, &entry) {
                let style = |style, text: &str| output.style_stderr(style, text);
                stderr.write(&format_row(&row, output.width, style));
            }
        }
    }
}
