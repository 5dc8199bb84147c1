//! [`OnceGuard`], which guards `Context::once` against a `requestState` that a client sends more than once.
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
    First(EffectClaim),
    /// The effect was performed, with this output.
    Done(Json),
}

/// The exclusive right to perform an effect, with the mark and its store; `None` in a first round, which sets no mark.
pub(super) struct EffectClaim(Option<(String, Arc<dyn OnceStore>)>);

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

    pub(super) async fn claim(&self, key: &str) -> Result<ClaimOutcome, InputError> {
        if key.len() > MAX_KEY {
            let what = format!("the key of `once` exceeds {MAX_KEY} bytes");
            return Err(InputError::misuse(what));
        }
        let key = BASE64_URL_SAFE_NO_PAD.encode(key);
        let mark = format!("once {} {key}", self.lineage);
        match with_store_timeout(self.store.mark(&mark, self.lifetime)).await {
            Ok(OnceOutcome::First) => {
                let claim = EffectClaim(Some((mark, self.store.clone())));
                Ok(ClaimOutcome::First(claim))
            }
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
}

impl EffectClaim {
    /// A claim without a mark, for a first round.
    pub(super) fn unmarked() -> Self {
        Self(None)
    }

    /// Stores the output for replays of the same state.
    pub(super) async fn store_output(self, output: &Json) {
        let Some((mark, store)) = self.0 else {
            return;
        };
        let output = Bytes::copy_from_slice(output.as_bytes());
        if let Err(error) = with_store_timeout(store.store_value(&mark, output)).await {
            // The effect was performed, so this round continues; a replay will be refused.
            tracing::warn!(%error, "failed to store the output of `once`");
        }
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
/// Fits into a key of [`OnceStore`] after base64 encoding, together with a lineage.
const MAX_KEY: usize = 128;
const SKEW: Duration = Duration::from_secs(5 * 60);
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
