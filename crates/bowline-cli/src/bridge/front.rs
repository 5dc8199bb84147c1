//! The side of the bridge that clients see.

use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;

use bowline::http::HttpService;
use bowline::http::server::SourcePolicy;
use bowline_auth::server::ResourceServer;
use bowline_bridge::Bridge;

use super::BoxError;
use super::options::{FrontPlan, HttpFront};
use super::signals::Signals;
use crate::failure::Failure;
use crate::options::DrainOptions;
use crate::suggestion::Suggestion;

/// Serves clients until a signal, or until stdin ends.
pub(crate) async fn serve(
    bridge: &Bridge,
    front: &FrontPlan,
    drain: DrainOptions,
    guard: Option<ResourceServer>,
    signals: &Signals,
) -> Result<(), BoxError> {
    let front = match front {
        FrontPlan::Stdio => {
            let mut wire = bridge.wire();
            if let Some(grace) = drain.grace {
                wire = wire.grace(grace);
            }
            return serve_unless_signalled(wire.serve_stdio(), signals, || {}).await;
        }
        FrontPlan::Http(front) => front,
    };
    let service = drain.apply(http_service(bridge, front));
    let bound = service.bind(&front.address).await;
    let bound = bound.map_err(|error| {
        let cause = std::error::Error::source(&error).map_or(String::new(), |it| format!(": {it}"));
        Failure::other(format!("failed to listen on {}{cause}", front.address))
            .suggest(Suggestion::FreeAddress)
    })?;
    let address = bound.local_addr();
    let is_exposed = guard.is_none() && !address.ip().is_loopback();
    // On stderr, as everything that the bridge prints: stdout is not for people.
    let announce = || {
        eprintln!("bowline: listening on http://{address}{}", front.path());
        if is_exposed {
            eprintln!(
                "bowline: everyone who can reach {address} can use what is behind this bridge; require tokens with `auth` in a file, or put a proxy in front"
            );
        }
    };
    match guard {
        Some(guard) => {
            let serving = bound.layer(guard).serve_until_signal();
            serve_unless_signalled(serving, signals, announce).await
        }
        None => serve_unless_signalled(bound.serve_until_signal(), signals, announce).await,
    }
}

/// Serves with a future that ends at a signal, unless there was one before it listened to them.
async fn serve_unless_signalled(
    serving: impl Future<Output = bowline::Result<()>>,
    signals: &Signals,
    announce: impl FnOnce(),
) -> Result<(), BoxError> {
    let mut serving = pin!(serving);
    // The first poll begins to listen to signals. Looked for before it, one that comes in between would be missed.
    let begun = std::future::poll_fn(|cx| Poll::Ready(serving.as_mut().poll(cx))).await;
    if let Poll::Ready(served) = begun {
        return Ok(served?);
    }
    if signals.has_any() {
        return Ok(());
    }
    announce();
    Ok(serving.await?)
}

fn http_service(bridge: &Bridge, front: &HttpFront) -> HttpService {
    let service = bridge
        .http()
        .paths([front.path(), "/sse"])
        .cors(&front.cors);
    if front.allow_hosts.is_empty() {
        return service;
    }
    let policy = match is_loopback(&front.address) {
        true => SourcePolicy::loopback(),
        false => SourcePolicy::public(),
    };
    service.source(
        front
            .allow_hosts
            .iter()
            .fold(policy, SourcePolicy::allow_host),
    )
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_that_comes_before_the_front_listens_to_them_ends_it() {
        let (count, counted) = tokio::sync::watch::channel(0);
        let signals = Signals::counted_by(counted);
        let serving = std::future::poll_fn(|_| {
            count.send_replace(1);
            Poll::Pending // never sees that signal
        });

        let announce = || panic!("announced what does not listen any more");
        let served = serve_unless_signalled(serving, &signals, announce).await;

        assert!(served.is_ok());
    }

    #[test]
    fn loopback_addresses_are_recognized() {
        for address in ["127.0.0.1:0", "localhost:8000", "[::1]:80", "127.9.9.9:1"] {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["0.0.0.0:80", "[::]:80", "example.com:80"] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}
