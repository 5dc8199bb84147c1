//! `Context::remember` and `Context::once`: values and effects that persist over the rounds of a request.

use std::future::Future;

use bowline_core::input::ServerRound;
use bowline_types::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::once::{ClaimOutcome, EffectClaim};
use super::{InputError, RejectedInput};
use crate::exchange::Context;

impl Context {
    /// Stores a value for later rounds of this request, replacing the previous one.
    ///
    /// The value is encrypted and authenticated in the `requestState`, which the client returns in the next round. Any
    /// replica of the server with the same key can read it; the client can neither read nor change it.
    ///
    /// # Errors
    ///
    /// If the value cannot be serialized, or the method has no rounds.
    pub fn remember<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), InputError> {
        self.store(VALUE, value)
    }

    /// Returns the value that [`Context::remember`] stored in this round or an earlier one.
    ///
    /// # Errors
    ///
    /// If the value does not have this type.
    pub fn recall<T: DeserializeOwned>(&self) -> Result<Option<T>, InputError> {
        self.stored(VALUE)
    }

    /// Runs `future` at most once per request; later rounds return its stored output. `key` identifies the effect
    /// within the handler, in at most 128 bytes.
    ///
    /// A client can send the same `requestState` more than once, on purpose or because a response was lost. So a
    /// [mark](crate::OnceStore) is set before `future` runs, and a replay gets the output that was stored with the
    /// mark. If no output is stored, because `future` failed, was dropped or is still running, the replay fails with
    /// `-32602`. Replicas must share one store; see [`Server::once_store`](crate::Server::once_store).
    ///
    /// Request input before or after `once`, not concurrently with it: an input request ends the round and drops
    /// `future`, and the next round is then refused.
    ///
    /// # Errors
    ///
    /// If the output cannot be serialized, a stored one does not have this type, the state was used before and no
    /// output was stored, or the [`OnceStore`](crate::OnceStore) fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`. Its output is not stored, and it does not run again for the same `requestState`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::InputError;
    /// # async fn reserve() -> u64 { 7 }
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Payment { card: String }
    /// async fn book(cx: Context) -> Result<u64, InputError> {
    ///     let ticket = cx.once("ticket", reserve()).await?;
    ///     let _payment: Payment = cx.elicit("payment", format!("Pay for ticket {ticket}?")).await?;
    ///     Ok(ticket)
    /// }
    /// ```
    pub async fn once<T, F>(&self, key: &str, future: F) -> Result<T, InputError>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = T>,
    {
        self.try_once(key, async { Ok(future.await) }).await
    }

    /// Like [`Context::once`], for a future that may fail. Only a success is stored.
    ///
    /// # Errors
    ///
    /// The error of `future`, or as [`Context::once`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`. Its output is not stored, and it does not run again for the same `requestState`.
    pub async fn try_once<T, E, F>(&self, key: &str, future: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<InputError>,
        F: Future<Output = Result<T, E>>,
    {
        let stored_key = format!("{ONCE}{key}");
        if let Some(output) = self.stored(&stored_key)? {
            return Ok(output);
        }
        let claim = match self.claim(key).await? {
            ClaimOutcome::First(claim) => claim,
            ClaimOutcome::Done(output) => {
                let decoded = decode(&output)?;
                self.store(&stored_key, &output)?;
                return Ok(decoded);
            }
        };
        let output = future.await?;
        let encoded = encode(&output)?;
        claim.store_output(&encoded).await;
        self.store(&stored_key, &encoded)?;
        Ok(output)
    }

    /// Claims the effect `key`, unless another round with the same `requestState` has claimed it.
    async fn claim(&self, key: &str) -> Result<ClaimOutcome, InputError> {
        let once = self.input().and_then(|input| input.once.as_ref());
        let Some(once) = once else {
            return Ok(ClaimOutcome::First(EffectClaim::unmarked())); // a first round has no `requestState` to replay
        };
        let claimed = once.claim(key).await;
        if let (Err(error @ InputError::StateReused), Some(input)) = (&claimed, self.input()) {
            // The client must start again, so this must be a JSON-RPC error and not a tool result for the model.
            input.state.lock().rejected = Some(RejectedInput {
                why: error.to_string(),
                error: error.to_rpc_error(),
            });
        }
        claimed
    }

    fn store<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), InputError> {
        let value = encode(value)?;
        self.with_round(|round| round.remember(key, value))
    }

    fn stored<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, InputError> {
        let stored = self.with_round(|round| round.recall(key).cloned())?;
        stored.as_ref().map(decode).transpose()
    }

    fn with_round<T>(&self, act: impl FnOnce(&mut ServerRound) -> T) -> Result<T, InputError> {
        let Some(input) = self.input() else {
            let why = "requests of this method have one round only";
            return Err(InputError::Unavailable { why });
        };
        let mut state = input.state.lock();
        state
            .round
            .as_mut()
            .map(act)
            .ok_or(InputError::RequestEnded)
    }
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Json, InputError> {
    Json::encode(value)
        .map_err(|error| InputError::misuse(format!("failed to serialize a value: {error}")))
}

fn decode<T: DeserializeOwned>(value: &Json) -> Result<T, InputError> {
    let of_another_type =
        |error| InputError::misuse(format!("stored value has another type: {error}"));
    value.decode().map_err(of_another_type)
}

/// The key of [`Context::remember`]; keys of [`Context::once`] have the prefix `ONCE`.
const VALUE: &str = "value";
const ONCE: &str = "once:";
