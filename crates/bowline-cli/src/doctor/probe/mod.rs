//! What the doctor sends, and what it observes. Probes do the I/O, and gather facts that the checks judge.
//!
//! They speak the wire by themselves, not through a client: a client hides what is wrong with a server as far as it can.

pub(crate) mod cancel;
pub(crate) mod channel;
pub(crate) mod half_close;
pub(crate) mod http;
pub(crate) mod http_sse;
pub(crate) mod legacy;
pub(crate) mod lists;
pub(crate) mod metadata;
pub(crate) mod socket;
pub(crate) mod source;
pub(crate) mod stdio;
pub(crate) mod stream;

mod message;
pub(crate) use message::{Reply, Request, accept_messages};

use std::time::Duration;

use bowline::exchange::Dialect;
use serde_json::Value;

use channel::Channel as _;
use http::HttpLink;
use http_sse::HttpSse;
use stdio::StdioProcess;

/// How long the doctor waits for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the answer to one request.
    pub(crate) answer: Duration,
    /// For the first answer of a process.
    pub(crate) start: Duration,
    /// For the first event of a stream.
    pub(crate) stream: Duration,
    /// For what a server sends after a cancel.
    pub(crate) cancel: Duration,
    /// For a process to exit when its stdin is closed.
    pub(crate) exit: Duration,
}

/// A way to send requests to the server in one protocol version.
#[derive(Debug)]
pub(crate) struct Link<'a> {
    pub(crate) way: Way<'a>,
    /// The methods of modern results without `resultType`.
    pub(crate) untyped: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Way<'a> {
    Http(HttpLink<'a>),
    /// In the oldest revision.
    HttpSse(&'a mut HttpSse, &'static Dialect),
    Stdio(&'a mut StdioProcess, &'static Dialect),
}

impl<'a> Link<'a> {
    pub(crate) fn new(way: Way<'a>) -> Self {
        Self {
            way,
            untyped: Vec::new(),
        }
    }

    pub(crate) fn dialect(&self) -> &'static Dialect {
        match &self.way {
            Way::Http(link) => link.dialect,
            Way::HttpSse(_, dialect) | Way::Stdio(_, dialect) => dialect,
        }
    }

    /// Sends a request. The error is a sentence: why there is no answer.
    pub(crate) async fn request(
        &mut self,
        method: &str,
        params: Value,
        patience: Patience,
    ) -> Result<Reply, String> {
        let reply = match &mut self.way {
            Way::Http(link) => link.request(method, params).await?,
            Way::HttpSse(channel, dialect) => {
                let answer = channel
                    .request(dialect, method, params, patience.answer)
                    .await;
                answer.map_err(|failure| failure.to_string())?
            }
            Way::Stdio(process, dialect) => {
                let answer = process
                    .request(dialect, method, params, patience.answer)
                    .await;
                answer.map_err(|failure| failure.to_string())?
            }
        };
        let is_untyped = reply
            .result()
            .is_some_and(|it| it.get("resultType").is_none());
        if self.dialect().is_modern() && is_untyped && !self.untyped.iter().any(|it| it == method) {
            self.untyped.push(method.to_owned());
        }
        Ok(reply)
    }
}
