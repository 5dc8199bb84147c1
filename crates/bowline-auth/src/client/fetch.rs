//! Performs the requests of a flow: within limits, and only to addresses that the guard lets through.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;
use std::vec;

use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpSend, HyperSend};
use bytes::Bytes;
use http::{Request, Response};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use super::guard::Guard;
use super::{Error, Result};

/// Sends requests and brings back whole responses. Redirects are not followed: what is said elsewhere is said
/// by somebody else.
#[derive(Clone)]
pub(crate) struct Fetch {
    send: Arc<dyn HttpSend>,
}

impl Fetch {
    pub(crate) fn by(send: Arc<dyn HttpSend>) -> Self {
        Self { send }
    }

    /// Over connections of its own, which lead nowhere that the guard does not admit.
    pub(crate) fn guarded(guard: Guard) -> Result<Self> {
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|source| Error::Application {
                what: "the system's certificates cannot be read",
                source: source.into(),
            })?;
        let mut tcp = HttpConnector::new_with_resolver(GuardedResolver(guard));
        tcp.enforce_http(false);
        let connector = tls.https_or_http().enable_http1().wrap_connector(tcp);
        Ok(Self::by(Arc::new(HyperSend::over(connector))))
    }

    /// # Cancel safety
    ///
    /// Dropping the future abandons the request.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        // What follows `?` may be a secret.
        let mut uri = request.uri().to_string();
        uri.truncate(uri.find('?').unwrap_or(uri.len()));
        let fetching = async {
            let response = self.send.send(request.map(Into::into)).await?;
            let (head, body) = response.into_parts();
            let body = body.collect(LARGEST).await?;
            Ok::<_, bowline::Error>(Response::from_parts(head, body))
        };
        match tokio::time::timeout(LIMIT, fetching).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(Error::unreachable(&uri, error)),
            Err(_) => Err(Error::unreachable(
                &uri,
                bowline::Error::Timeout { after: LIMIT },
            )),
        }
    }
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetch").finish_non_exhaustive()
    }
}

/// Finds the addresses of a host, and keeps those that the guard admits. What is checked here is what is
/// connected to, so that a name cannot mean one thing when it is checked and another when it is used.
#[derive(Clone, Debug)]
struct GuardedResolver(Guard);

impl Service<Name> for GuardedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let admitted: Vec<_> = found.filter(|at| guard.admits(at.ip())).collect();
            if admitted.is_empty() {
                let what =
                    format!("`{name}` has no public address, and private ones were not allowed");
                return Err(io::Error::other(what));
            }
            Ok(admitted.into_iter())
        })
    }
}

/// The largest response, in bytes. Documents and tokens are a few thousand.
const LARGEST: usize = 256 * 1024;
/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses of a name that every machine knows, and that is not public.
    async fn resolve(guard: Guard) -> io::Result<Vec<SocketAddr>> {
        let name = "localhost".parse().map_err(io::Error::other)?;
        let found = GuardedResolver(guard).call(name).await?;
        Ok(found.collect())
    }

    #[tokio::test]
    async fn a_name_that_leads_into_a_private_network_has_no_address() {
        let refused = resolve(Guard::Public).await.unwrap_err();
        let allowed = resolve(Guard::ThisMachine).await.unwrap();

        assert!(
            refused
                .to_string()
                .contains("`localhost` has no public address")
        );
        assert!(allowed.iter().all(|at| at.ip().is_loopback()));
    }
}
