//! [`Upstream`]: the server behind the proxy.

use std::error::Error as StdError;
use std::fmt;

use http::header::{ACCEPT_ENCODING, HOST, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;

use super::headers::remove_hop_by_hop;
use super::invalid_url;
use super::tapped_body::TappedBody;
use crate::failure::Failure;
use crate::https;
use crate::values::NamedValue;

/// The server behind the proxy, over HTTP/1.1, or HTTP/2 if TLS negotiates it.
pub(super) struct Upstream {
    client: Client<HttpsConnector<HttpConnector>, TappedBody<Incoming>>,
    scheme: Scheme,
    authority: Authority,
    endpoint: PathAndQuery,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Upstream {
    pub(super) fn new(url: &str, headers: Vec<NamedValue>) -> Result<Self, Failure> {
        let uri: Uri = url.parse().map_err(|_| invalid_url(url))?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(invalid_url(url));
        };
        let header = |header: NamedValue| {
            let name: HeaderName = header.name.parse().ok()?;
            Some((name, HeaderValue::from_str(&header.value).ok()?))
        };
        let headers: Option<Vec<_>> = headers.into_iter().map(header).collect();
        Ok(Self {
            client: https::client(scheme == Scheme::HTTPS)?,
            scheme,
            authority,
            endpoint: parts
                .path_and_query
                .unwrap_or_else(|| PathAndQuery::from_static("/")),
            headers: headers.ok_or_else(|| Failure::usage("expected --header 'Name: value'"))?,
        })
    }

    /// Returns the path of the endpoint, which is the same at the proxy.
    pub(super) fn path(&self) -> &str {
        self.endpoint.path()
    }

    /// Sends a request.
    ///
    /// # Cancel safety
    ///
    /// Dropping it, or later the response, closes the request.
    pub(super) async fn send(
        &self,
        mut head: Parts,
        body: TappedBody<Incoming>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        remove_hop_by_hop(&mut head.headers);
        // That of the proxy; the client writes the one of the upstream.
        head.headers.remove(HOST);
        // A compressed response could not be recorded.
        head.headers.remove(ACCEPT_ENCODING);
        for (name, value) in &self.headers {
            head.headers.insert(name, value.clone());
        }
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        *request.headers_mut() = head.headers;
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = self.uri(&head.uri).ok_or(UpstreamError::Uri)?;
        self.client
            .request(request)
            .await
            .map_err(|error| UpstreamError::Request {
                authority: self.authority.to_string(),
                error,
            })
    }

    /// Returns the address of a request: the same path at the upstream. The query of the given URL, which may be a key,
    /// is added to requests for its path that have none.
    fn uri(&self, uri: &Uri) -> Option<Uri> {
        let asked = uri
            .path_and_query()
            .cloned()
            .unwrap_or_else(|| PathAndQuery::from_static("/"));
        let path = match asked.query().is_none() && asked.path() == self.endpoint.path() {
            true => self.endpoint.clone(),
            false => asked,
        };
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path);
        uri.build().ok()
    }
}

/// Why a request was not answered by the upstream.
#[derive(Debug)]
pub(super) enum UpstreamError {
    Uri,
    Request {
        authority: String,
        error: hyper_util::client::legacy::Error,
    },
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri => f.write_str("the path of the request is invalid"),
            Self::Request { authority, error } => {
                write!(f, "failed to reach {authority}: {error}")?;
                let mut cause = StdError::source(error);
                while let Some(error) = cause {
                    write!(f, ": {error}")?;
                    cause = error.source();
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_go_to_the_same_path_and_the_query_of_the_url_is_added_to_its_own() {
        let upstream = Upstream::new("http://h:1/mcp?key=1", Vec::new()).unwrap();
        for (asked, expected) in [
            ("/mcp", "http://h:1/mcp?key=1"),
            ("/mcp?key=2", "http://h:1/mcp?key=2"),
            ("/.well-known/x", "http://h:1/.well-known/x"),
            ("http://127.0.0.1:8008/mcp", "http://h:1/mcp?key=1"),
        ] {
            assert_eq!(upstream.uri(&asked.parse().unwrap()).unwrap(), expected);
        }
    }

    #[test]
    fn a_url_without_a_host_is_refused() {
        assert!(Upstream::new("http:///mcp", Vec::new()).is_err());
    }
}
