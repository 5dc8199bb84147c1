//! `Context::remember`, `once` and `step`: values and effects that persist over the runs of a handler.

use std::future::Future;

use bowline_types::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{HandlerRun, InputError, InputSource as _, check_key};
use crate::exchange::Context;

impl Context {
    /// Stores a value for later rounds of this request, replacing the previous one.
    ///
    /// The value is encrypted and authenticated in the `requestState`, which the client returns in the next round. Any
    /// replica of the server with the same key can read it; the client can neither read nor change it.
    ///
    /// # Errors
    ///
    /// If the value cannot be serialized, the method has no rounds, or a task fails to store it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may or may not be stored.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::InputError;
    /// # fn expensive() -> u64 { 7 }
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Consent { agreed: bool }
    /// async fn estimate(cx: Context) -> Result<u64, InputError> {
    ///     let price = match cx.recall().await? {
    ///         Some(price) => price,
    ///         None => {
    ///             let price = expensive();
    ///             cx.remember(&price).await?;
    ///             price
    ///         }
    ///     };
    ///     let _consent: Consent = cx.elicit("consent", format!("Pay {price}?")).await?;
    ///     Ok(price)
    /// }
    /// ```
    pub async fn remember<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), InputError> {
        let value = encode(value)?;
        self.run_of_rounds()?.store(VALUE, value).await
    }

    /// Returns the value that [`Context::remember`] stored in this round or an earlier one.
    ///
    /// # Errors
    ///
    /// If the value does not have this type, the method has no rounds, or a task fails to read it.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn recall<T: DeserializeOwned>(&self) -> Result<Option<T>, InputError> {
        let stored = self.run_of_rounds()?.stored(VALUE).await?;
        stored.as_ref().map(decode).transpose()
    }

    /// Runs `future` at most once per request; later rounds return its stored output. `key` identifies the effect
    /// within the handler, in at most 128 bytes.
    ///
    /// A client can send the same `requestState` more than once, on purpose or because a response was lost. So a
    /// [mark](crate::cluster::Marks) is set before `future` runs, and a replay gets the output that was stored with the
    /// mark. If no output is stored, because `future` failed, was dropped or is still running, the replay fails with
    /// `-32602`. Replicas must share their marks; see [`Server::marks`](crate::Server::marks).
    ///
    /// Request input before or after `once`, not concurrently with it: an input request ends the round and drops
    /// `future`, and the next round is then refused.
    ///
    /// # Errors
    ///
    /// If the output cannot be serialized, a stored one does not have this type, the state was used before and no
    /// output was stored, or the [`Marks`](crate::cluster::Marks) fail.
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
        check_length(key)?;
        self.perform(&format!("once:{key}"), future).await
    }

    /// Runs `future`, unless an earlier run of this handler did and its output was stored; then returns that output.
    ///
    /// A step is part of a sequence: a name may be used again, in a loop for example, and each use is a step of its
    /// own. So the handler must use the same names in the same order whenever it runs with the same answers. `name` has
    /// at most 128 bytes.
    ///
    /// In a request this is [`once`](Self::once). In a task that is resumed after its process has died, the steps
    /// whose output was stored do not run again; see the extension that runs the task for what happens to the step
    /// that was interrupted.
    ///
    /// # Errors
    ///
    /// As [`Context::once`], or if the name is empty or contains `#`.
    ///
    /// # Cancel safety
    ///
    /// As [`Context::once`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// # use bowline::exchange::InputError;
    /// # async fn upload(_: u32) -> u64 { 7 }
    /// async fn publish(cx: Context) -> Result<u64, InputError> {
    ///     let mut bytes = 0;
    ///     for part in 0..3 {
    ///         bytes += cx.step("upload", upload(part)).await?;
    ///     }
    ///     Ok(bytes)
    /// }
    /// ```
    pub async fn step<T, F>(&self, name: &str, future: F) -> Result<T, InputError>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = T>,
    {
        self.try_step(name, async { Ok(future.await) }).await
    }

    /// Like [`Context::step`], for a future that may fail. Only a success is stored.
    ///
    /// # Errors
    ///
    /// The error of `future`, or as [`Context::step`].
    ///
    /// # Cancel safety
    ///
    /// As [`Context::once`].
    pub async fn try_step<T, E, F>(&self, name: &str, future: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<InputError>,
        F: Future<Output = Result<T, E>>,
    {
        check_key("name of a step", name)?;
        check_length(name)?;
        let name = self.run_of_rounds()?.number_step(name);
        self.perform(&format!("step:{name}"), future).await
    }

    /// Returns the stored output of an effect, or runs `future` and stores its output.
    async fn perform<T, E, F>(&self, key: &str, future: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<InputError>,
        F: Future<Output = Result<T, E>>,
    {
        let run = self.run_of_rounds()?;
        let performed = run.begin_effect(key).await.inspect_err(|error| {
            // The client must start again, so this must be a JSON-RPC error and not a tool result for the model.
            if matches!(error, InputError::StateReused) {
                run.reject(error);
            }
        });
        if let Some(output) = performed? {
            return Ok(decode(&output)?);
        }
        let output = future.await?;
        run.finish_effect(key, encode(&output)?).await?;
        Ok(output)
    }

    fn run_of_rounds(&self) -> Result<&HandlerRun, InputError> {
        let why = "requests of this method have one round only";
        let run = self.input().map(|run| &**run);
        run.ok_or(InputError::Unavailable { why })
    }
}

fn check_length(key: &str) -> Result<(), InputError> {
    if key.len() <= MAX_KEY {
        return Ok(());
    }
    let what = format!("the key of an effect exceeds {MAX_KEY} bytes");
    Err(InputError::misuse(what))
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

/// The key of [`Context::remember`].
const VALUE: &str = "value";
/// The maximum length of a key. It fits into a key of [`Marks`](crate::cluster::Marks) after base64 encoding, together
/// with a lineage and a number.
const MAX_KEY: usize = 128;
