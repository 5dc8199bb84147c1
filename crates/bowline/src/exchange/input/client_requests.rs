//! [`ClientRequestsInput`], the [`InputSource`] of the legacy era: server-to-client requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::{Caller, Request};
use bowline_core::input::RawInputRequest;
use bowline_types::Json;

use super::{InputError, InputRequestOptions, InputSource};
use crate::Error;
use crate::exchange::{Answer, BoxFuture, CallOptions, Context, NotificationSink};
use crate::sync::Mutex;
use crate::telemetry::ContextTelemetry;

/// Sends input requests over the back channel of a request. The handler runs once, so values are kept in memory.
pub(super) struct ClientRequestsInput {
    sink: Arc<dyn NotificationSink>,
    telemetry: ContextTelemetry,
    caller: Arc<Caller>,
    /// The timeout of an input request that has none of its own.
    timeout: Duration,
    values: Mutex<BTreeMap<String, Json>>,
}

impl ClientRequestsInput {
    pub(super) fn new(cx: &Context, timeout: Duration) -> Self {
        Self {
            sink: cx.sink().clone(),
            telemetry: cx.telemetry().clone(),
            caller: cx.caller().clone(),
            timeout,
            values: Mutex::default(),
        }
    }

    /// Sends a server-to-client request. Dropping the future cancels it.
    async fn send_and_wait(
        &self,
        key: &str,
        input_request: RawInputRequest,
        timeout: Option<Duration>,
    ) -> Result<Json, InputError> {
        let Some(client) = self.telemetry.back_channel(&*self.sink) else {
            let why = "the connection has no channel for server-to-client requests";
            return Err(InputError::Unavailable { why });
        };
        let options = CallOptions {
            timeout: timeout.or(Some(self.timeout)),
            ..CallOptions::default()
        };
        let (method, params) = input_request.into_request();
        let params = params.unwrap_or_else(Json::empty_object);
        let request = Request::new(method, params, self.caller.clone());
        let key = key.to_owned();
        match client.open(request, options).answer().await {
            Ok(Answer::Complete(answer)) => Ok(answer),
            Ok(Answer::InputRequired(_) | Answer::Extension { .. }) => {
                let why = "expected a complete result".into();
                Err(InputError::InvalidAnswer { key, why })
            }
            Err(Error::Rpc(error)) => Err(InputError::Rpc { key, error }),
            Err(source) => Err(InputError::Failed { key, source }),
        }
    }

    fn value(&self, key: &str) -> Option<Json> {
        self.values.lock().get(key).cloned()
    }

    fn set_value(&self, key: &str, value: Json) {
        self.values.lock().insert(key.to_owned(), value);
    }
}

impl InputSource for ClientRequestsInput {
    fn ask<'a>(
        &'a self,
        key: &'a str,
        request: RawInputRequest,
        options: InputRequestOptions,
    ) -> BoxFuture<'a, Result<Json, InputError>> {
        Box::pin(self.send_and_wait(key, request, options.timeout))
    }

    fn store<'a>(&'a self, key: &'a str, value: Json) -> BoxFuture<'a, Result<(), InputError>> {
        self.set_value(key, value);
        Box::pin(std::future::ready(Ok(())))
    }

    fn stored<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        Box::pin(std::future::ready(Ok(self.value(key))))
    }

    fn begin_effect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        self.stored(key)
    }

    fn finish_effect<'a>(
        &'a self,
        key: &'a str,
        output: Json,
    ) -> BoxFuture<'a, Result<(), InputError>> {
        self.store(key, output)
    }
}
