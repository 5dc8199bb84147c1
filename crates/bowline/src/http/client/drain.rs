//! Reading responses to their end after their answer.
//!
//! An HTTP/1.1 connection is good for the next request only once its response was read to the end, and an HTTP/2 stream
//! that is dropped earlier is reset, which servers count against their clients. The caller has its answer by then and
//! does not wait.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::body::ResponseBody;
use super::response::Events;

/// Responses whose answer was read and whose end was not. Dropping it closes them.
#[derive(Default)]
pub(crate) struct Drain {
    tasks: Mutex<JoinSet<()>>,
}

impl Drain {
    /// Reads `events` up to their end, for a while. Where too many are being read already, the response is closed.
    pub(crate) fn finish(&self, events: Events) {
        let body = events.into_body();
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if body.is_end_stream() {
            return;
        }
        // No code that could panic runs under this lock, and the tasks that are removed have ended.
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
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

/// The end usually follows its answer at once.
const DEADLINE: Duration = Duration::from_secs(1);
const MAX_BYTES: usize = 64 * 1024;
const MAX_DRAINED: usize = 64;
