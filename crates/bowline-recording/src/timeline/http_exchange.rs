//! [`HttpExchange`]: an HTTP request with its response.

use std::time::Duration;

use super::HttpEnd;
use crate::HttpHeader;

/// An HTTP request with its response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpExchange {
    /// The number of the connection.
    pub connection: u64,
    /// The line of the request.
    pub line: usize,
    /// The time of the request.
    pub at: Duration,
    /// The HTTP method.
    pub method: String,
    /// The path and query.
    pub path: String,
    /// The headers of the request.
    pub request_headers: Vec<HttpHeader>,
    /// The time of the response's head.
    pub responded: Option<Duration>,
    /// The line of the response.
    pub response_line: Option<usize>,
    /// The status of the response.
    pub status: Option<u16>,
    /// The headers of the response.
    pub response_headers: Vec<HttpHeader>,
    /// The numbers of the exchanges whose requests it carried.
    pub requests: Vec<usize>,
    /// The end.
    pub end: Option<HttpEnd>,
}

impl HttpExchange {
    /// Returns the value of the request's header with this name, in lower case.
    #[must_use]
    pub fn request_header(&self, name: &str) -> Option<&str> {
        find(&self.request_headers, name)
    }

    /// Returns the value of the response's header with this name, in lower case.
    #[must_use]
    pub fn response_header(&self, name: &str) -> Option<&str> {
        find(&self.response_headers, name)
    }

    /// Returns the legacy session of the request, or the one that the response assigns.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        let assigned = self.response_header(SESSION_ID);
        self.request_header(SESSION_ID).or(assigned)
    }

    /// Returns whether the response is a stream of server-sent events.
    #[must_use]
    pub fn is_event_stream(&self) -> bool {
        let content_type = self.response_header("content-type").unwrap_or_default();
        content_type.trim_start().starts_with("text/event-stream")
    }
}

fn find<'a>(headers: &'a [HttpHeader], name: &str) -> Option<&'a str> {
    let is_it = |header: &&HttpHeader| header.0.eq_ignore_ascii_case(name);
    headers.iter().find(is_it).map(|header| header.1.as_str())
}

pub(super) const SESSION_ID: &str = "mcp-session-id";
