//! What a handler keeps from one of its runs to the next.

use std::future::Future;

use bowline_core::input::Round;
use bowline_types::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::AskError;
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

    /// Runs `future` in one run of the handler only; later ones find its output.
    ///
    /// What is asked for by the time the output is there is all in vain if the round ends before it: put
    /// no question beside it, only before and after.
    ///
    /// # Errors
    ///
    /// If the output has no JSON form, or an earlier one is not of this type.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops `future`, whose output is then not kept.
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
    /// Dropping it drops `future`, whose output is then not kept.
    pub async fn try_once<T, E, F>(&self, key: &str, future: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<AskError>,
        F: Future<Output = Result<T, E>>,
    {
        let key = format!("{ONCE}{key}");
        if let Some(output) = self.kept(&key)? {
            return Ok(output);
        }
        let output = future.await?;
        self.keep(&key, &output)?;
        Ok(output)
    }

    fn keep<T: Serialize + ?Sized>(&self, key: &str, value: &T) -> Result<(), AskError> {
        let value = Json::encode(value).map_err(|error| {
            AskError::misuse(format!("a value to keep has no JSON form: {error}"))
        })?;
        self.with_round(|round| round.remember(key, value))
    }

    fn kept<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, AskError> {
        let kept = self.with_round(|round| round.recall(key).cloned())?;
        kept.map(|value| value.decode())
            .transpose()
            .map_err(|error| {
                AskError::misuse(format!("a value that was kept is of another type: {error}"))
            })
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

/// Where [`Context::remember`] keeps its value; no key of [`Context::once`] reads like it.
const VALUE: &str = "value";
const ONCE: &str = "once:";
