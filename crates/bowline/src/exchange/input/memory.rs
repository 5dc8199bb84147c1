//! What a handler keeps from one of its runs to the next, and what it does in one of them only.

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

    /// Runs `future` in one run of the handler only; later ones find its output. `key` names it among those of this handler,
    /// in at most 128 bytes.
    ///
    /// That holds, too, for a client that sends an old `requestState` a second time, on purpose or because an answer got lost:
    /// a [mark](crate::Marks) is set before `future` runs, and a later run with the same state finds the output that was
    /// kept with the mark. If there is none, because `future` failed, was dropped or still runs, the request is refused with
    /// `-32602`: nobody knows how far it came. Replicas need one store for all; see
    /// [`Server::marks`](crate::Server::marks).
    ///
    /// What is asked for by the time the output is there is all in vain if the round ends before it: put
    /// no question beside it, only before and after.
    ///
    /// # Errors
    ///
    /// If the output has no JSON form, an earlier one is not of this type, the request was continued from here before and its
    /// output is not known, or the store of marks fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`, whose output is then not kept, and which is not run again for the same `requestState`.
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
    /// Dropping it drops `future`, whose output is then not kept, and which is not run again for the same `requestState`.
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

    /// Claims `key` for this run, unless an earlier run of the same state has.
    async fn claim(&self, key: &str) -> Result<Claimed, AskError> {
        let once = self.input().and_then(|input| input.once.as_ref());
        let Some(once) = once else {
            return Ok(Claimed::First(Claim::unmarked())); // a first round has no state that could be sent again
        };
        let claimed = once.claim(key).await;
        if let (Err(error @ AskError::UsedUp), Some(input)) = (&claimed, self.input()) {
            // It is the client that has to start again, not the model that has to hear of it.
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
