//! Ctrl-C during a call: cancels it, and reports how the server was told and how long that took.

use std::time::{Duration, Instant};

use bowline::{Call, Client};
use serde_json::json;

use crate::failure::Failure;
use crate::latency::time_text;
use crate::output::{Output, Style};
use crate::target::finish;

/// How a call was cancelled.
#[derive(Clone, Debug)]
pub(super) struct CancelReport {
    how: String,
    ran: Duration,
    /// Until the server had read the cancellation, or until it was sent if that cannot be seen.
    took: Duration,
    is_read: bool,
}

/// Cancels the call. On a wire, a request after the cancellation shows when the server has read it.
pub(super) async fn cancel(call: Call, client: Client, ran: Duration) -> CancelReport {
    let id = call.id().map(ToString::to_string);
    let is_modern = client.dialect().is_modern();
    let is_process = client.process_id().is_some();
    let request = id.map_or("the call".to_owned(), |id| format!("request {id}"));
    let began = Instant::now();
    call.cancel("interrupted by the user");
    // The only detached requests of this client are those that cancel tasks.
    let is_task = client.detached_requests() > 0;
    let how = match (is_task, is_process, is_modern) {
        (true, ..) => "sent tasks/cancel for the task of the call".to_owned(),
        (_, true, _) => format!("sent notifications/cancelled for {request}"),
        (_, false, true) => format!("closed the response of {request}"),
        (_, false, false) => format!("posted notifications/cancelled for {request}"),
    };
    // Messages of a wire are read in order, so the answer comes after the cancellation was read.
    let is_read = is_process && client.ping().timeout(PING_TIME).await.is_ok();
    let mut took = began.elapsed();
    // Over HTTP, closing sends what is left.
    finish(client).await;
    if !is_process {
        took = began.elapsed();
    }
    CancelReport {
        how,
        ran,
        took,
        is_read,
    }
}

impl CancelReport {
    /// Prints the report to stderr; as JSON it is the result.
    pub(super) fn print(&self, output: Output) -> Result<(), Failure> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if output.is_json() {
            return Ok(output.json(&json!({
                "cancelled": true,
                "how": self.how,
                "ranMicros": micros(self.ran),
                "tookMicros": micros(self.took),
                "readByServer": self.is_read,
            }))?);
        }
        let took = time_text(self.took);
        let end = match self.is_read {
            true => format!("the server had read it {took} later"),
            false => format!("that took {took}"),
        };
        if output.is_stderr_styled {
            eprintln!(); // after the `^C` that the terminal shows
        }
        let title = format!("cancelled after {}:", time_text(self.ran));
        eprintln!("{} {}", output.style_stderr(Style::Yellow, title), self.how);
        eprintln!("  {end}");
        Ok(())
    }
}

const PING_TIME: Duration = Duration::from_secs(1);
