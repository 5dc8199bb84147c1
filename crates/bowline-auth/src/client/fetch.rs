//! [`Fetch`]: sends the requests of a flow, with limits, and only to addresses that the policy admits.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use std::time::Duration;
use std::vec;

use bowline::exchange::BoxFuture;
use bowline::http::RedactedUrl;
use bowline::http::client::{HttpClient, HttpStream, HyperClient};
use bytes::Bytes;
use http::{Request, Response};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use tower_service::Service;

use super::address_policy::AddressPolicy;
use super::{Error, Result};

/// Sends requests and collects their responses. Redirects are not followed: they could leave the checked host.
#[derive(Clone)]
pub(crate) struct Fetch {
    policy: AddressPolicy,
    /// Created by the first request: the root certificates take 2 MB, and most servers never need a sign-in.
    client: Arc<OnceLock<Arc<dyn HttpClient>>>,
}

impl Fetch {
    /// Sends through `client`, which the policy does not concern.
    pub(crate) fn new(client: Arc<dyn HttpClient>) -> Self {
        Self {
            policy: AddressPolicy::Public,
            client: Arc::new(OnceLock::from(client)),
        }
    }

    /// Sends over its own connections, to addresses that the policy admits.
    pub(crate) fn with_policy(policy: AddressPolicy) -> Self {
        Self {
            policy,
            client: Arc::default(),
        }
    }

    fn client(&self) -> Result<&dyn HttpClient> {
        if let Some(client) = self.client.get() {
            return Ok(&**client);
        }
        let created = connect(self.policy)?;
        Ok(&**self.client.get_or_init(|| created))
    }

    /// # Cancel safety
    ///
    /// Dropping the future abandons the request.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let uri = RedactedUrl::new(request.uri());
        let client = self.client()?;
        let fetching = async {
            let response = client.send(request.map(Into::into)).await?;
            let (head, body) = response.into_parts();
            let body = body.collect(MAX_RESPONSE_BYTES).await?;
            Ok::<_, bowline::Error>(Response::from_parts(head, body))
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, fetching).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(Error::unreachable(&uri, error)),
            Err(_) => Err(Error::unreachable(
                &uri,
                bowline::Error::Timeout {
                    after: REQUEST_TIMEOUT,
                },
            )),
        }
    }
}

/// Creates a client that connects to addresses that the policy admits.
fn connect(policy: AddressPolicy) -> Result<Arc<dyn HttpClient>> {
    let tls = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
        .map_err(|source| Error::Application {
            what: "failed to load the system's root certificates",
            source: source.into(),
        })?;
    let mut tcp = HttpConnector::new_with_resolver(PolicyResolver(policy));
    tcp.enforce_http(false);
    let https = tls.https_or_http().enable_http1().wrap_connector(tcp);
    let connector = move |uri| {
        let mut https = https.clone();
        async move {
            poll_fn(|cx| https.poll_ready(cx)).await?;
            Ok(HttpStream::new(TokioIo::new(https.call(uri).await?)))
        }
    };
    Ok(Arc::new(HyperClient::with_connector(connector)))
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetch").finish_non_exhaustive()
    }
}

/// Resolves a host name to the addresses that the policy admits. The connector uses exactly these, so that DNS
/// rebinding cannot change the address between check and use.
#[derive(Clone, Debug)]
struct PolicyResolver(AddressPolicy);

impl Service<Name> for PolicyResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let policy = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let admitted: Vec<_> = found.filter(|at| policy.admits(at.ip())).collect();
            if admitted.is_empty() {
                let what = format!("`{name}` resolves to private or reserved addresses only");
                return Err(io::Error::other(what));
            }
            Ok(admitted.into_iter())
        })
    }
}

/// The maximum size of a response, in bytes. Metadata and tokens have a few thousand.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;
/// The time limit for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves `localhost`, which exists on every machine and is not public.
    async fn resolve(policy: AddressPolicy) -> io::Result<Vec<SocketAddr>> {
        let name = "localhost".parse().map_err(io::Error::other)?;
        let found = PolicyResolver(policy).call(name).await?;
        Ok(found.collect())
    }

    #[test]
    fn root_certificates_are_loaded_by_the_first_request() {
        let fetch = Fetch::with_policy(AddressPolicy::Public);

        assert!(fetch.client.get().is_none());
    }

    #[tokio::test]
    async fn a_host_name_with_private_addresses_only_is_refused() {
        let refused = resolve(AddressPolicy::Public).await.unwrap_err();
        let allowed = resolve(AddressPolicy::ThisMachine).await.unwrap();

        assert!(
            refused
                .to_string()
                .contains("`localhost` resolves to private or reserved addresses")
        );
        assert!(allowed.iter().all(|at| at.ip().is_loopback()));
    }
}
