//! What happens once although its request may be continued from one state as often as somebody sends it.
//!
//! ```text
//! round 1 ──▶ asks ──▶ state of lineage L ──┬──▶ round 2: mark (L, key) ──▶ first: run it, keep its output
//!                                           └──▶ round 2 again: mark (L, key) ──▶ set before: its output, or -32602
//! ```

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_core::input::Round;
use bowline_types::Json;
use bytes::Bytes;

use super::AskError;
use crate::random;
use crate::{Marked, Marks, MarksError};

/// What all rounds of one request have in common, and the store in which they mark what they did.
pub(crate) struct Once {
    lineage: String,
    marks: Arc<dyn Marks>,
    lifetime: Duration,
}

/// Whether a thing is still to be done.
pub(super) enum Claimed {
    First(Claim),
    /// It was done, and this came of it.
    Done(Json),
}

/// The right to do it.
pub(super) struct Claim(Option<(String, Arc<dyn Marks>)>);

impl Once {
    /// For a round that continues from a state. `lifetime` is how long such a state can be sent again.
    pub(crate) fn of(round: &Round, marks: &Arc<dyn Marks>, lifetime: Duration) -> Option<Self> {
        let lineage: String = round.recall(LINEAGE)?.decode().ok()?;
        Some(Self {
            lineage,
            marks: marks.clone(),
            // Replicas differ a little in what time it is.
            lifetime: lifetime.saturating_add(SKEW),
        })
    }

    /// Gives a round that is about to become a state its lineage, unless it continues one.
    pub(crate) fn found_lineage(round: &mut Round) -> Result<(), &'static str> {
        if round.recall(LINEAGE).is_none() {
            let lineage = BASE64_URL_SAFE_NO_PAD.encode(random::bytes::<16>()?);
            round.remember(LINEAGE, serde_json::Value::from(lineage).into());
        }
        Ok(())
    }

    pub(super) async fn claim(&self, key: &str) -> Result<Claimed, AskError> {
        if key.len() > MAX_KEY {
            let what = format!("a key of `once` has more than {MAX_KEY} bytes");
            return Err(AskError::misuse(what));
        }
        let key = BASE64_URL_SAFE_NO_PAD.encode(key);
        let mark = format!("once {} {key}", self.lineage);
        match in_time(self.marks.mark(&mark, self.lifetime)).await {
            Ok(Marked::First) => {
                let claim = Claim(Some((mark, self.marks.clone())));
                Ok(Claimed::First(claim))
            }
            Ok(Marked::Again(Some(output))) => {
                let output = String::from_utf8(output.into());
                let output = output.ok().and_then(|text| Json::parse(text).ok());
                output.map(Claimed::Done).ok_or(AskError::UsedUp)
            }
            Ok(Marked::Again(None)) => Err(AskError::UsedUp),
            Err(error) => Err(AskError::Marks(error)),
        }
    }
}

impl Claim {
    /// For what nobody can do again.
    pub(super) fn unmarked() -> Self {
        Self(None)
    }

    /// Keeps what came of it, for whoever sends the same state again.
    pub(super) async fn keep(self, output: &Json) {
        let Some((mark, marks)) = self.0 else {
            return;
        };
        let output = Bytes::copy_from_slice(output.as_bytes());
        if let Err(error) = in_time(marks.keep(&mark, output)).await {
            // It has happened, so this round goes on; whoever sends its state again is refused.
            tracing::warn!(%error, "failed to keep what came of something that happens once");
        }
    }
}

async fn in_time<T>(access: impl Future<Output = Result<T, MarksError>>) -> Result<T, MarksError> {
    let accessed = tokio::time::timeout(STORE_TIMEOUT, access).await;
    accessed.unwrap_or_else(|_| {
        let source = format!("it did not answer within {STORE_TIMEOUT:?}").into();
        Err(MarksError::Unavailable { source })
    })
}

/// Where a state keeps its lineage, among what a handler remembers; no key of a handler reads like it.
const LINEAGE: &str = "lineage";
/// In base64, with a lineage, it fits into a key of [`Marks`].
const MAX_KEY: usize = 128;
const SKEW: Duration = Duration::from_secs(5 * 60);
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
