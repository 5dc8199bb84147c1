//! `Drain`, which reads responses to their end in the background once nothing else in them is needed: an SSE stream
//! after the JSON-RPC response, the body of a `202 Accepted`.
//!
//! An HTTP/1.1 connection can be reused only after its response was read to the end, and an HTTP/2 stream that is
//! dropped earlier is reset, which servers count against their rate limit of resets. The caller does not wait for this.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::body::ResponseBody;

use crate::sync::Mutex;

/// The tasks that read responses to their end. Dropping it closes those responses.
#[derive(Default)]
pub(crate) struct Drain {
    tasks: Mutex<JoinSet<()>>,
}

impl Drain {
    /// Reads `body` to its end in the background, within limits. Closes the response if too many are being read.
    pub(crate) fn finish(&self, body: ResponseBody) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if body.is_end_stream() {
            return;
        }
        // No code that could panic runs under this lock; the tasks that are removed have finished.
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        if tasks.len() < MAX_DRAINED {
            tasks.spawn_on(read_to_end(body), &runtime);
        }
    }
}

async fn read_to_end(mut body: ResponseBody) {
    let reading = async {
        let mut left = MAX_BYTES;
        while let Ok(Some(chunk)) = body.chunk().await {
            let Some(rest) = left.checked_sub(chunk.len()) else {
                return;
            };
            left = rest;
        }
    };
    let _ = tokio::time::timeout(DEADLINE, reading).await;
}

/// The end of the response usually follows immediately.
const DEADLINE: Duration = Duration::from_secs(1);
const MAX_BYTES: usize = 64 * 1024;
const MAX_DRAINED: usize = 64;
