//! [`OnceGuard`], which guards `Context::once` and `step` against a `requestState` that a client sends more than once.
//!
//! ```text
//! round 1 ──▶ requestState with lineage L ──┬──▶ round 2: mark (L, key) is new ──▶ run the effect, store its output
//!                                           └──▶ replay: mark (L, key) is set ──▶ the stored output, or `StateReused`
//! ```

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_core::input::ServerRound;
use bowline_types::Json;

use super::InputError;
use crate::cluster::{MarkError, MarkFuture, Marks, Unavailable};
use crate::random;

/// The lineage of a request, a random id that all its rounds share, and the marks of its effects.
pub(crate) struct OnceGuard {
    lineage: String,
    marks: Arc<dyn Marks>,
    lifetime: Duration,
}

/// The outcome of [`OnceGuard::claim`].
pub(super) enum ClaimOutcome {
    /// No earlier round claimed the effect; the caller must perform it.
    First,
    /// The effect was performed, with this output.
    Done(Json),
}

impl OnceGuard {
    /// Returns `None` for a first round, which has no `requestState` to replay. `lifetime` is that of a `requestState`.
    pub(crate) fn of(
        round: &ServerRound,
        marks: &Arc<dyn Marks>,
        lifetime: Duration,
    ) -> Option<Self> {
        let lineage: String = round.recall(LINEAGE)?.decode().ok()?;
        Some(Self {
            lineage,
            marks: marks.clone(),
            // The mark must outlive the `requestState`, which a replica whose clock is slow accepts for longer.
            lifetime: lifetime.saturating_add(SKEW),
        })
    }

    /// Adds a lineage to a round before its state is encrypted, unless it has one.
    pub(crate) fn ensure_lineage(round: &mut ServerRound) -> Result<(), &'static str> {
        if round.recall(LINEAGE).is_none() {
            let lineage = BASE64_URL_SAFE_NO_PAD.encode(random::bytes::<16>()?);
            round.remember(LINEAGE, serde_json::Value::from(lineage).into());
        }
        Ok(())
    }

    /// Claims an effect, unless another round with the same `requestState` has claimed it.
    pub(super) async fn claim(&self, key: &str) -> Result<ClaimOutcome, InputError> {
        let mark = self.mark(key);
        let setting = self
            .marks
            .set_if_absent(mark.as_bytes(), PENDING, self.lifetime);
        match with_timeout(setting).await {
            Ok(None) => Ok(ClaimOutcome::First),
            Ok(Some(stored)) => {
                let output = stored.strip_prefix(PERFORMED).map(<[u8]>::to_vec);
                let output = output.and_then(|output| String::from_utf8(output).ok());
                let output = output.and_then(|text| Json::parse(text).ok());
                output
                    .map(ClaimOutcome::Done)
                    .ok_or(InputError::StateReused)
            }
            Err(error) => Err(InputError::Marks(error)),
        }
    }

    /// Stores the output of a claimed effect, for replays of the same state.
    pub(super) async fn store_output(&self, key: &str, output: &Json) {
        let (mark, output) = (self.mark(key), [PERFORMED, output.as_bytes()].concat());
        let replacing = self
            .marks
            .replace(mark.as_bytes(), PENDING, &output, self.lifetime);
        if let Err(error) = with_timeout(replacing).await {
            // The effect was performed, so this round continues; a replay will be refused.
            tracing::warn!(%error, "failed to store the output of an effect");
        }
    }

    /// Returns the mark of an effect: its kind (`once` or `step`), the lineage and the encoded key.
    fn mark(&self, key: &str) -> String {
        let (kind, key) = key.split_once(':').unwrap_or(("once", key));
        let key = BASE64_URL_SAFE_NO_PAD.encode(key);
        format!("{kind} {} {key}", self.lineage)
    }
}

async fn with_timeout<T>(access: MarkFuture<'_, T>) -> Result<T, MarkError> {
    let accessed = tokio::time::timeout(MARKS_TIMEOUT, access).await;
    accessed.unwrap_or_else(|_| Err(Unavailable::timed_out("the marks", MARKS_TIMEOUT).into()))
}

/// The key of the lineage among the stored values of a round; keys of `Context::once` have a prefix.
const LINEAGE: &str = "lineage";
const SKEW: Duration = Duration::from_secs(5 * 60);
const MARKS_TIMEOUT: Duration = Duration::from_secs(10);
/// The value of the mark of an effect that is being performed, or whose output was not stored.
const PENDING: &[u8] = b"0";
/// The first byte of the value of a performed effect, before its output.
const PERFORMED: &[u8] = b"1";
