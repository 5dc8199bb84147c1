//! Values that a handler keeps from one round to the next, and effects that it performs in one round only.

use std::future::Future;

use bowline_core::input::Round;
use bowline_types::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::once::{Claim, Claimed};
use super::{AskError, Unaskable};
use crate::exchange::Context;

impl Context {
    /// Keeps a value for the runs to come of this handler, in place of the one kept before.
    ///
    /// The value travels to the client and back, sealed: the client can neither read nor change it, and
    /// any replica of the server that has the key can go on with it.
    ///
    /// # Errors
    ///
    /// If the value has no JSON form, or nothing can be kept here.
    pub fn remember<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), AskError> {
        self.keep(VALUE, value)
    }

    /// What was kept by [`Context::remember`], in this run or an earlier one.
    ///
    /// # Errors
    ///
    /// If it is not of this type.
    pub fn recall<T: DeserializeOwned>(&self) -> Result<Option<T>, AskError> {
        self.kept(VALUE)
    }

    /// Runs `future` in one round only; later rounds get its output. `key` identifies the effect within the handler, in at most
    /// 128 bytes.
    ///
    /// A client can send the same `requestState` more than once, on purpose or because a response was lost. So a
    /// [mark](crate::Marks) is set before `future` runs, and a replay gets the output that was stored with the mark. If there is
    /// none, because `future` failed, was dropped or is still running, the replay fails with `-32602`. Replicas must share one
    /// store; see [`Server::marks`](crate::Server::marks).
    ///
    /// Ask questions before or after `once`, not concurrently with it: a question ends the round and drops `future`, and the
    /// next round is then refused.
    ///
    /// # Errors
    ///
    /// If the output cannot be serialized, a stored one does not have this type, the state was used before and no output was
    /// stored, or the store of marks fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`. Its output is not stored, and it does not run again for the same `requestState`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::AskError;
    /// # async fn reserve() -> u64 { 7 }
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Payment { card: String }
    /// async fn book(cx: Context) -> Result<u64, AskError> {
    ///     let ticket = cx.once("ticket", reserve()).await?;
    ///     let _payment: Payment = cx.elicit("payment", format!("Pay for ticket {ticket}?")).await?;
    ///     Ok(ticket)
    /// }
    /// ```
    pub async fn once<T, F>(&self, key: &str, future: F) -> Result<T, AskError>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = T>,
    {
        self.try_once(key, async { Ok(future.await) }).await
    }

    /// Like [`Context::once`], for what may fail: only a success is kept.
    ///
    /// # Errors
    ///
    /// As `future` fails, or if its output cannot be kept.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`. Its output is not stored, and it does not run again for the same `requestState`.
    pub async fn try_once<T, E, F>(&self, key: &str, future: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<AskError>,
        F: Future<Output = Result<T, E>>,
    {
        let kept_as = format!("{ONCE}{key}");
        if let Some(output) = self.kept(&kept_as)? {
            return Ok(output);
        }
        let claim = match self.claim(key).await? {
            Claimed::First(claim) => claim,
            Claimed::Done(output) => {
                let decoded = decode(&output)?;
                self.keep(&kept_as, &output)?;
                return Ok(decoded);
            }
        };
        let output = future.await?;
        let encoded = encode(&output)?;
        claim.keep(&encoded).await;
        self.keep(&kept_as, &encoded)?;
        Ok(output)
    }

    /// Claims the effect `key` for this round, unless another round of the same state has.
    async fn claim(&self, key: &str) -> Result<Claimed, AskError> {
        let once = self.input().and_then(|input| input.once.as_ref());
        let Some(once) = once else {
            return Ok(Claimed::First(Claim::unmarked())); // a first round has no state that could be replayed
        };
        let claimed = once.claim(key).await;
        if let (Err(error @ AskError::UsedUp), Some(input)) = (&claimed, self.input()) {
            // The client has to start again, so this must not become a tool result for the model.
            input.lock().unaskable = Some(Unaskable {
                why: error.to_string(),
                error: error.to_rpc_error(),
            });
        }
        claimed
    }

    fn keep<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), AskError> {
        let value = encode(value)?;
        self.with_round(|round| round.remember(key, value))
    }

    fn kept<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, AskError> {
        let kept = self.with_round(|round| round.recall(key).cloned())?;
        kept.as_ref().map(decode).transpose()
    }

    fn with_round<T>(&self, act: impl FnOnce(&mut Round) -> T) -> Result<T, AskError> {
        let Some(input) = self.input() else {
            let why = "a request of this method has one round only";
            return Err(AskError::Nobody { why });
        };
        let mut asking = input.lock();
        asking.round.as_mut().map(act).ok_or(AskError::Over)
    }
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Json, AskError> {
    Json::encode(value)
        .map_err(|error| AskError::misuse(format!("a value to keep has no JSON form: {error}")))
}

fn decode<T: DeserializeOwned>(value: &Json) -> Result<T, AskError> {
    let of_another_type =
        |error| AskError::misuse(format!("a value that was kept is of another type: {error}"));
    value.decode().map_err(of_another_type)
}

/// Where [`Context::remember`] keeps its value; no key of [`Context::once`] reads like it.
const VALUE: &str = "value";
const ONCE: &str = "once:";
