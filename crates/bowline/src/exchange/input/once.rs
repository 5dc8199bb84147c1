//! Guards `Context::once` against a `requestState` that a client sends more than once.
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

/// The lineage of a request, which all its rounds share, and the store in which its effects are marked.
pub(crate) struct Once {
    lineage: String,
    marks: Arc<dyn Marks>,
    lifetime: Duration,
}

/// The outcome of [`Once::claim`].
pub(super) enum Claimed {
    /// The effect has not happened; the caller performs it.
    First(Claim),
    /// The effect has happened, with this output.
    Done(Json),
}

/// The exclusive right to perform an effect.
pub(super) struct Claim(Option<(String, Arc<dyn Marks>)>);

impl Once {
    /// Returns `None` for a first round, which has no state that could be replayed. `lifetime` is that of a sealed state.
    pub(crate) fn of(round: &Round, marks: &Arc<dyn Marks>, lifetime: Duration) -> Option<Self> {
        let lineage: String = round.recall(LINEAGE)?.decode().ok()?;
        Some(Self {
            lineage,
            marks: marks.clone(),
            // The clocks of replicas differ.
            lifetime: lifetime.saturating_add(SKEW),
        })
    }

    /// Adds a lineage to a round that is about to be sealed, unless it has one.
    pub(crate) fn ensure_lineage(round: &mut Round) -> Result<(), &'static str> {
        if round.recall(LINEAGE).is_none() {
            let lineage = BASE64_URL_SAFE_NO_PAD.encode(random::bytes::<16>()?);
            round.remember(LINEAGE, serde_json::Value::from(lineage).into());
        }
        Ok(())
    }

    pub(super) async fn claim(&self, key: &str) -> Result<Claimed, AskError> {
        if key.len() > MAX_KEY {
            let what = format!("the key of `once` exceeds {MAX_KEY} bytes");
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
    /// A claim without a mark, for a first round.
    pub(super) fn unmarked() -> Self {
        Self(None)
    }

    /// Stores the output for replays of the same state.
    pub(super) async fn keep(self, output: &Json) {
        let Some((mark, marks)) = self.0 else {
            return;
        };
        let output = Bytes::copy_from_slice(output.as_bytes());
        if let Err(error) = in_time(marks.keep(&mark, output)).await {
            // The effect has happened, so this round continues; a replay will be refused.
            tracing::warn!(%error, "failed to store the output of `once`");
        }
    }
}

async fn in_time<T>(access: impl Future<Output = Result<T, MarksError>>) -> Result<T, MarksError> {
    let accessed = tokio::time::timeout(STORE_TIMEOUT, access).await;
    accessed.unwrap_or_else(|_| {
        let source = format!("no response within {STORE_TIMEOUT:?}").into();
        Err(MarksError::Unavailable { source })
    })
}

/// The key of the lineage among the remembered values; keys of handlers have a prefix.
const LINEAGE: &str = "lineage";
/// In base64 and together with a lineage it fits into a key of [`Marks`].
const MAX_KEY: usize = 128;
const SKEW: Duration = Duration::from_secs(5 * 60);
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
