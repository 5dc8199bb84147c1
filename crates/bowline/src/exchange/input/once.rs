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
use bytes::Bytes;

use super::InputError;
use crate::random;
use crate::{OnceOutcome, OnceStore, OnceStoreError};

/// The lineage of a request, a random id that all its rounds share, and the store of its marks.
pub(crate) struct OnceGuard {
    lineage: String,
    store: Arc<dyn OnceStore>,
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
        store: &Arc<dyn OnceStore>,
        lifetime: Duration,
    ) -> Option<Self> {
        let lineage: String = round.recall(LINEAGE)?.decode().ok()?;
        Some(Self {
            lineage,
            store: store.clone(),
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
        match with_store_timeout(self.store.mark(&mark, self.lifetime)).await {
            Ok(OnceOutcome::First) => Ok(ClaimOutcome::First),
            Ok(OnceOutcome::Again(Some(output))) => {
                let output = String::from_utf8(output.into());
                let output = output.ok().and_then(|text| Json::parse(text).ok());
                output
                    .map(ClaimOutcome::Done)
                    .ok_or(InputError::StateReused)
            }
            Ok(OnceOutcome::Again(None)) => Err(InputError::StateReused),
            Err(error) => Err(InputError::OnceStore(error)),
        }
    }

    /// Stores the output of a claimed effect, for replays of the same state.
    pub(super) async fn store_output(&self, key: &str, output: &Json) {
        let output = Bytes::copy_from_slice(output.as_bytes());
        let mark = self.mark(key);
        if let Err(error) = with_store_timeout(self.store.store_value(&mark, output)).await {
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

async fn with_store_timeout<T>(
    access: impl Future<Output = Result<T, OnceStoreError>>,
) -> Result<T, OnceStoreError> {
    let accessed = tokio::time::timeout(STORE_TIMEOUT, access).await;
    accessed.unwrap_or_else(|_| {
        let source = format!("no response within {STORE_TIMEOUT:?}").into();
        Err(OnceStoreError::Unavailable { source })
    })
}

/// The key of the lineage among the stored values of a round; keys of `Context::once` have a prefix.
const LINEAGE: &str = "lineage";
const SKEW: Duration = Duration::from_secs(5 * 60);
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
